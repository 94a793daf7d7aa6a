"""`fairlead.view`: a finished run as a page for the browser."""

from __future__ import annotations

from pathlib import Path

from fairlead.library.fairness import is_journal
from fairlead.library.reading import File
from fairlead.model.errors import InputError
from fairlead.model.extras import require


def view(journal: File, page: File | None = None, window_h: tuple[float, float] | None = None) -> Path:
    """Write a page about the run of a journal, as `fairlead view` does; by default next to it. Returns its path.

    `window_h` are the hours to show in the chart of who ran where.
    """
    require("jinja2")
    from fairlead.studies.compare.journal_runs import read_run
    from fairlead.studies.report.page import write_page

    path = Path(journal)
    if not path.is_file():
        raise InputError("there is no such file", path=str(path))
    if not is_journal(str(path)):
        raise InputError(
            "this is not the journal of a run; `fairlead simulate --journal FILE` writes one", path=str(path)
        )
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    out = path.with_name(f"{name}.html") if page is None else Path(page)
    run = read_run(path)
    write_page(run.comparison, str(out), window_h, run.jobs)
    return out
