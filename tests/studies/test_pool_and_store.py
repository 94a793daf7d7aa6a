"""The pool of processes and the store of results, which comparisons and reproductions use."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from building import job
from fairlead.model.errors import InputError
from fairlead.studies.runs.digest import code_digest
from fairlead.studies.runs.process_pool import PoolProcess, ProcessPool, run_in_processes
from fairlead.studies.runs.store import Store
from fairlead.traces.formats import Trace


def work(task: str) -> str:
    if task == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "fails":
        raise ValueError("no such\nthing")
    return task.upper()


def test_a_task_that_fails_or_takes_its_process_down_fails_alone() -> None:
    outcomes = {one.task: one for one in run_in_processes(work, ["a", "dies", "b", "fails", "c"], workers=2)}

    assert {task: one.result for task, one in outcomes.items() if one.result} == {"a": "A", "b": "B", "c": "C"}
    assert outcomes["dies"].reason == "its process died (signal SIGKILL; out of memory?)"
    assert outcomes["fails"].reason.startswith("ValueError: no such thing (test_pool_and_store.py line ")


def test_leaving_early_stops_the_processes() -> None:
    outcomes = run_in_processes(work, ["a", "b", "c"], workers=1)

    assert next(outcomes).result == "A"
    outcomes.close()  # type: ignore[attr-defined]
    assert list(outcomes) == []


def process_id(_: str) -> int:
    return os.getpid()


def test_one_batch_after_the_other_runs_in_the_same_processes() -> None:
    with ProcessPool(workers=1) as pool:
        seen = [one.result for batch in ("ab", "cd") for one in pool.run(process_id, batch)]
        failed = [one.reason for one in pool.run(work, ["dies"])]
        after = [one.result for one in pool.run(work, ["a"])]

    assert len(set(seen)) == 1
    assert failed == ["its process died (signal SIGKILL; out of memory?)"]
    assert after == ["A"]


def test_a_process_that_died_while_it_was_idle_loses_no_task() -> None:
    worker = PoolProcess()
    worker.process.kill()
    worker.process.join()

    assert not worker.start(work, "a")


def look_at(task: tuple[str, Trace]) -> tuple[int, int]:
    """Which workload of its process the task has, and of how many jobs."""
    return id(task[1]), len(task[1].jobs)


def test_a_process_keeps_the_workload_for_its_next_task() -> None:
    short, long = (Trace(tuple(job(f"j{i}") for i in range(count)), "made up", "own") for count in (2, 3))
    tasks = [("a", short), ("b", short), ("c", long), ("d", short)]

    results = {one.task[0]: one.result for one in run_in_processes(look_at, tasks, workers=1)}

    seen = {name: result for name, result in results.items() if result is not None}
    assert seen["a"] == seen["b"]
    assert [jobs for _, jobs in seen.values()] == [2, 2, 3, 2]


def test_a_stored_result_is_reused_unless_everything_is_to_be_computed_again(tmp_path: Path) -> None:
    store = Store(tmp_path, "--state")

    assert store.find("ab/abc") is None
    store.keep("ab/abc", "one")
    store.keep("ab/abc", "two")

    assert store.find("ab/abc") == "two"
    assert Store(tmp_path, "--state", fresh=True).find("ab/abc") is None
    assert [path.name for path in tmp_path.rglob("*.*")] == ["abc.json"]


def test_a_folder_that_cannot_be_used_names_the_option_for_another(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where a folder is wanted")
    store = Store(tmp_path / "taken", "--results")

    with pytest.raises(InputError, match=r"cannot keep results here: .*; choose a folder with --results"):
        store.keep("oef-full", "{}")
    with pytest.raises(InputError, match=r"cannot read results here: .*; choose a folder with --results"):
        store.find("oef-full")


def test_the_digest_changes_with_the_sources_that_count() -> None:
    def only_the_core(source: Path) -> bool:
        return source.parts[0] == "rounds"

    assert code_digest() == code_digest()
    assert code_digest(only_the_core) != code_digest()
