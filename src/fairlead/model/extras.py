"""Which extra of Fairlead brings a library that is not installed: `pip install fairlead` alone brings none."""

from __future__ import annotations

from importlib.util import find_spec

EXTRA_OF = {
    "highspy": "sim",
    "numpy": "sim",
    "pydantic": "sim",
    "rich": "sim",
    "typer": "sim",
    "yaml": "sim",
    "fastapi": "service",
    "uvicorn": "service",
    "jinja2": "report",  # and "service", whose other libraries are missed first
    "matplotlib": "report",
}


def how_to_install(missing: ModuleNotFoundError) -> str | None:
    """What to say to somebody whose installation lacks a library of ours; None if the module is none of them."""
    library = (missing.name or "").partition(".")[0]
    extra = EXTRA_OF.get(library)
    if extra is None:
        return None
    return f"this needs {library}, which is not installed; run: pip install 'fairlead[{extra}]' (or 'fairlead[all]')"


def require(*libraries: str) -> None:
    """Fail now, rather than after long work, if one of these is not installed."""
    for library in libraries:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named '{library}'", name=library)
