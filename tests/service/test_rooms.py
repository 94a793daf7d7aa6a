"""The shape of the service: all SQL is in `service/store/`, and serving needs no simulator."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fairlead

SOURCES = Path(fairlead.__file__).parent
STORE = SOURCES / "service" / "store"
STATEMENT = re.compile(
    r"\s*(SELECT .+|INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|CREATE (TABLE|INDEX)|PRAGMA \w+|BEGIN IMMEDIATE|ATTACH )"
)
EXECUTES = {"execute", "executemany", "executescript"}


def sql_in(path: Path) -> Iterator[str]:
    """Places where a module imports sqlite3, spells a statement or calls a method that executes one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        imports = isinstance(node, ast.Import) and any(alias.name == "sqlite3" for alias in node.names)
        imports_from = isinstance(node, ast.ImportFrom) and node.module == "sqlite3"
        spells = isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
        executes = isinstance(node, ast.Attribute) and node.attr in EXECUTES
        if imports or imports_from or spells or executes:
            assert isinstance(node, ast.stmt | ast.expr)
            yield f"{path.relative_to(SOURCES)}:{node.lineno}"


def test_sql_is_in_the_store_only() -> None:
    others = [path for path in sorted(SOURCES.rglob("*.py")) if STORE not in path.parents]

    assert [place for path in others for place in sql_in(path)] == []


def test_the_search_recognises_what_the_store_does() -> None:
    kinds = {path.name for path in STORE.glob("*.py") if any(sql_in(path))}

    assert {"database.py", "tables.py", "log.py", "reads.py", "tokens.py", "changes.py"} <= kinds


def test_no_process_of_a_service_imports_the_simulator() -> None:
    modules = ("process.daemon", "process.scheduler", "api.server", "api.audit")
    imports = "".join(f"import fairlead.service.{name}\n" for name in modules)
    prints = "import sys\nprint([name for name in sys.modules if name.startswith('fairlead.sim')])"

    printed = subprocess.run(
        [sys.executable, "-c", imports + prints], check=True, capture_output=True, text=True
    ).stdout

    assert printed.strip() == "[]"
