"""The engines that can be chosen by name."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import get_type_hints

import pytest

from building import Scene
from fairlead.cli.serve import serve
from fairlead.engines.leases import Condition
from fairlead.engines.registry import ENGINES, RunnerOptions

NOTHING_RUNS = (Condition.NEVER_CLAIMED, Condition.VANISHED, Condition.UNSEEN)  # unseen where there is no Slurm


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_of_the_registry_opens_a_runner_and_a_reader_of_an_empty_directory(tmp_path: Path, name: str) -> None:
    kind, state = ENGINES[name], Scene([], "v100:1").state()

    runner, reader = kind.open_runner(tmp_path, state, RunnerOptions(emulate=True)), kind.open_reader(tmp_path)

    with ExitStack() as stack:
        stack.callback(getattr(runner, "close", lambda: None))  # only some runners keep a file open
        assert runner.recall(("a", 1)) is None
        assert runner.look([("a", 1)]).sight(("a", 1)).condition in NOTHING_RUNS
    assert reader.exit_code(("a", 1)) is None
    assert reader.read_log(("a", 1), 0, 100) == b""


def test_reading_the_registry_imports_no_runner() -> None:
    code = "import sys, fairlead.engines.registry; print([name for name in sys.modules if name.endswith('.runner')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_help_of_serve_has_the_sentence_of_every_engine() -> None:
    help_ = get_type_hints(serve, include_extras=True)["engine"].__metadata__[0].help

    assert [f"{name}: {kind.sentence}" in help_ for name, kind in ENGINES.items()] == [True] * len(ENGINES)
