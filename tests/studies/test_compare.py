"""Comparisons: the numbers do not depend on how they are run or interrupted, and a failing policy affects no other."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.cli.main import main
from fairlead.model.assumptions import Assumption
from fairlead.studies.compare.cases import make_case, run_case
from fairlead.studies.compare.demo import demo_request
from fairlead.studies.compare.promise_rows import promise_text, promises_over_seeds
from fairlead.studies.compare.run_records import RunRecord, Timings, record_from_json
from fairlead.studies.compare.table import METRICS, best_of, rows_of
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.fairness.promise_verdicts import PromiseVerdict, Standing
from fairlead.studies.policy_lab.plugins import refer
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import Summary
from fairlead.studies.runs.timeline import Series
from waiting import wait_for

BASE = ["compare", "--cluster", "v100:4,k80:4", "--generate", "durations=gavel,load=1.2,tenants=2", "--jobs", "12"]

GOOD = """
from fairlead.model.allocation import Grants, Level
from fairlead.policies.policy import Policy
import numpy as np

def allocate(view, memory):
    {before}
    free, rows = view.capacity.copy(), []
    for j in range(view.jobs):
        for t in np.flatnonzero(view.rate[j]):
            if free[t] >= view.width[j]:
                free[t] -= view.width[j]
                rows.append((j, t, view.width[j]))
                break
    jobs, types, gpus = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Grants(jobs, types, gpus), None

mine = Policy("{name}", "First come, first served.", "made up", Level.GRANTS, allocate)
"""


def own_policy(folder: Path, name: str, before: str = "pass") -> str:
    path = folder / f"{name}.py"
    path.write_text(GOOD.format(name=name, before=before), encoding="utf-8")
    return f"{path}:mine"


def call(*args: str) -> int:
    """The exit code of the command."""
    sys.argv = ["fairlead", *args]
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert call(*BASE, *args, "-o", "json") == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def numbers(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without timings and without the number of stored runs."""
    left = copy.deepcopy(answer)
    left.pop("runs_found_done")
    left.pop("files")
    for row in left["rows"]:
        row["metrics"].pop("decision_mean")
    for record in left["runs"]:
        record.pop("timings")
    return left


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert call(*args) == 2
    return capsys.readouterr().err


def test_the_numbers_do_not_depend_on_the_number_of_processes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    same = ["--policies", "fifo,las,gavel", "--seeds", "0..2", "--loads", "0.8,1.5"]

    one = run(capsys, *same, "--workers", "1", "--state", str(tmp_path / "one"))
    three = run(capsys, *same, "--workers", "3", "--state", str(tmp_path / "three"))

    assert numbers(one) == numbers(three)
    assert [(r["policy"], r["load"]) for r in one["rows"]] == [
        (p, load) for load in (0.8, 1.5) for p in ("fifo", "las", "gavel")
    ]
    assert all(row["runs"] == 3 for row in one["rows"])


def test_finished_runs_are_not_run_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = ["--state", str(tmp_path / "state"), "--seeds", "0,1"]

    first = run(capsys, "--policies", "fifo,las", *state)
    more = run(capsys, "--policies", "fifo,las,srtf", *state)
    fresh = run(capsys, "--policies", "fifo,las", *state, "--fresh")

    assert (first["runs_found_done"], more["runs_found_done"], fresh["runs_found_done"]) == (0, 4, 0)
    assert numbers(first) == numbers(fresh)
    assert [r for r in numbers(more)["runs"] if r["policy"] != "srtf"] == numbers(first)["runs"]


def test_a_truncated_file_is_not_used_as_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = ["--policies", "fifo", "--state", str(tmp_path / "state")]
    first = run(capsys, *state)
    (kept,) = (tmp_path / "state").rglob("*.json")
    kept.write_text(kept.read_text(encoding="utf-8")[:-20], encoding="utf-8")

    again = run(capsys, *state)

    assert again["runs_found_done"] == 0
    assert numbers(again) == numbers(first)


@pytest.mark.slow
def test_a_killed_comparison_continues_and_ends_with_the_same_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = f"import os, time; [time.sleep(0.02) for _ in iter(lambda: os.path.exists({str(go)!r}), True)]"
    slow = own_policy(tmp_path, "slow", wait)
    same = ["--policies", f"fifo,{slow}", "--seeds", "0..3", "--workers", "2"]
    state = tmp_path / "state"
    command = [sys.executable, "-m", "fairlead.cli.main", *BASE, *same, "--state", str(state), "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(lambda: list(state.rglob("*.json")) or process.poll() is not None, "a run to be kept")
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        go.touch()
    kept = len(list(state.rglob("*.json")))

    resumed = run(capsys, *same, "--state", str(state))
    whole = run(capsys, *same, "--state", str(tmp_path / "other"))

    assert 1 <= kept <= resumed["runs_found_done"] < 8
    assert whole["runs_found_done"] == 0
    assert numbers(resumed) == numbers(whole)


def test_a_policy_that_fails_fails_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raises = own_policy(tmp_path, "raises", "assert view.now_s < 3600, 'cannot count that far'")
    dies = own_policy(tmp_path, "dies", "import os; os._exit(7)")
    wrong = own_policy(tmp_path, "wrong", "view = __import__('dataclasses').replace(view, capacity=view.capacity * 9)")

    answer = run(capsys, "--policies", f"{raises},{dies},fifo,{wrong}", "--state", str(tmp_path / "state"))

    reasons = {failure["policy"]: failure["reason"] for failure in answer["failures"]}
    assert "cannot count that far" in reasons["raises"]
    assert "raises.py line" in reasons["raises"]
    assert reasons["dies"] == "its process died (exit code 7)"
    rows = {row["policy"]: row for row in answer["rows"]}
    assert rows["fifo"]["metrics"]["jct_mean"]["mean"] > 0
    assert rows["fifo"]["failed"] == []
    assert rows["raises"]["metrics"]["jct_mean"]["mean"] is None
    assert rows["raises"]["failed"][0]["reason"] == reasons["raises"]


def test_failures_are_shown_in_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dies = own_policy(tmp_path, "dies", "import os; os._exit(7)")

    assert call(*BASE, "--policies", f"fifo,{dies}", "--state", str(tmp_path / "state")) == 0

    out = capsys.readouterr().out
    assert "dies (1 failed)" in out
    assert "FAILED dies (seed 0): its process died (exit code 7)" in out


def test_a_comparison_in_which_every_run_failed_has_failed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raises = own_policy(tmp_path, "raises", "raise ValueError('never')")
    files = ["--report", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")]

    assert call(*BASE, "--policies", raises, "--state", str(tmp_path / "state"), *files) == 1

    output = capsys.readouterr()
    assert "FAILED raises (seed 0)" in output.out
    assert "every run failed" in output.out
    assert output.err.count("Traceback") == 0


def test_a_policy_of_ones_own_that_changes_is_run_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = ["--state", str(tmp_path / "state")]
    run(capsys, "--policies", own_policy(tmp_path, "mine"), *state)

    again = run(capsys, "--policies", own_policy(tmp_path, "mine"), *state)
    other = run(capsys, "--policies", own_policy(tmp_path, "mine", "view.jobs"), *state)

    assert (again["runs_found_done"], other["runs_found_done"]) == (1, 0)


def test_a_module_beside_a_policy_can_be_imported_and_is_part_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def done(helper: str) -> int:
        (tmp_path / "its_helper.py").write_text(helper, encoding="utf-8")
        return int(run(capsys, "--policies", mine, "--state", str(tmp_path / "state"))["runs_found_done"])

    mine = own_policy(tmp_path, "mine", "assert LIMIT")
    path = tmp_path / "mine.py"
    path.write_text("from its_helper import LIMIT\n" + path.read_text(encoding="utf-8"), encoding="utf-8")

    assert [done("LIMIT = 1"), done("LIMIT = 1"), done("LIMIT = 2")] == [0, 1, 0]


def test_a_seed_that_changes_nothing_is_not_another_observation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "jobs.csv"
    rows = "".join(f"j{i},u{i % 2},resnet50,{i * 100},1,{30000 + i}\n" for i in range(8))
    trace.write_text("id,tenant,model,arrival_s,gpus,steps\n" + rows, encoding="utf-8")
    args = ["compare", "--cluster", "v100:2,k80:2", "--trace", str(trace), "--policies", "fifo,srtf", "--seeds", "0..7"]

    args += ["--state", str(tmp_path / "state")]
    call(*args, "-o", "json")
    still = json.loads(capsys.readouterr().out)
    call(*args)
    table = " ".join(capsys.readouterr().out.split())
    call(*args, "--server-factors", "0.8:1.2", "-o", "json")
    drawn = json.loads(capsys.readouterr().out)
    call(*args, "--server-factors", "0.8:1.2")
    drawn_table = capsys.readouterr().out

    assert [row["runs"] for row in still["rows"]] == [1, 1]
    assert any("seeds 1..7 would repeat an earlier run" in note for note in still["assumptions"])
    assert not any(cell["best"] for row in still["rows"] for cell in row["metrics"].values())
    assert [row["runs"] for row in drawn["rows"]] == [8, 8]
    assert "the seed changes nothing in this workload, so 8 seeds are one run" in table
    assert "no best is marked" not in drawn_table


def test_a_load_moves_the_arrivals_of_a_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    here = ["--cluster", "v100:4,k80:4"]
    trace = str(tmp_path / "jobs.csv")
    call("trace", "generate", *here, "--jobs", "30", "--load", "0.5", "--durations", "gavel", "--out", trace)
    capsys.readouterr()

    args = ["--trace", trace, "--loads", "0.5,4", "--policies", "fifo,gavel", "--state", str(tmp_path / "state")]
    call("compare", *here, *args, "-o", "json")
    answer = json.loads(capsys.readouterr().out)

    wait = {(r["policy"], r["load"]): r["metrics"]["wait_mean"]["mean"] for r in answer["rows"]}
    assert wait["fifo", 4.0] > wait["fifo", 0.5]
    assert wait["gavel", 4.0] > wait["gavel", 0.5]
    assert any("load is 4 instead of" in note for note in answer["assumptions"])


def test_csv_holds_a_line_per_run_and_the_tenants_beside(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dies = own_policy(tmp_path, "dies", "import os; os._exit(7)")
    out = tmp_path / "runs.csv"

    answer = run(
        capsys, "--policies", f"fifo,{dies}", "--seeds", "0,1", "--state", str(tmp_path / "s"), "--csv", str(out)
    )

    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# fairlead: compare-runs/1"
    rows = list(csv.DictReader(lines[1:]))
    assert [(r["policy"], r["seed"]) for r in rows] == [("fifo", "0"), ("fifo", "1"), ("dies", "0"), ("dies", "1")]
    assert float(rows[0]["jct_mean_s"]) == answer["runs"][0]["summary"]["jct_s"]["mean"]
    assert rows[2]["failed"] == "its process died (exit code 7)"
    tenants = Path(answer["files"]["tenants"]).read_text(encoding="utf-8").splitlines()
    assert {row["tenant"] for row in csv.DictReader(tenants[1:])} == {"tenant-1", "tenant-2"}


def records_of(policy: str, values: list[float], **more: int) -> list[RunRecord]:
    """One record per seed in which every metric is the same number."""
    return [record_of(policy, seed, value, **more) for seed, value in enumerate(values)]


def record_of(policy: str, seed: int, value: float, *, jobs_finished: int = 60) -> RunRecord:
    each = dict.fromkeys(("mean", "p99", "max", "share_at_most_1"), value)
    numbers: dict[str, Any] = dict.fromkeys((field.name for field in fields(Summary)), value)
    for name in ("jct_s", "wait_s", "ftf", "latency_ratio"):
        numbers[name] = each
    summary = Summary(**{**numbers, "jobs_total": 60, "jobs_finished": jobs_finished, "tenants": {}})
    timings, series = Timings(each, value, value), Series([], {}, {}, None, None, None)
    return RunRecord("", policy, None, seed, summary, value, 1, 1, timings, {}, series, None)


def test_every_metric_is_read_where_its_path_in_the_document_says() -> None:
    (record,) = records_of("fifo", [2.0])
    document = record.to_json()

    for number, metric in enumerate(METRICS):
        inside = document
        for key in metric.path[:-1]:
            inside = inside[key]
        inside[metric.path[-1]] = float(number)
        document["timings"]["decision_s"] = dict(document["timings"]["decision_s"])
    assert [metric.read(record_from_json(document)) for metric in METRICS] == [float(n) for n in range(len(METRICS))]


def test_a_mean_is_between_the_smallest_and_the_largest_and_rounding_is_no_spread() -> None:
    value = 2.2
    assert np.full(6, value).mean() < value  # what makes it necessary

    (row,) = rows_of(["fifo"], [None], records_of("fifo", [value] * 6), [])

    cell = row.metrics["ftf_max"]
    assert (cell.low, cell.mean, cell.high, cell.sd) == (value, value, value, 0.0)


def test_the_answer_is_printed_even_where_drawing_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where a folder is wanted", encoding="utf-8")
    args = ["--policies", "fifo", "--state", str(tmp_path / "state"), "--figures", str(tmp_path / "taken")]

    assert call(*BASE, *args, "-o", "json") == 2

    output = capsys.readouterr()
    assert json.loads(output.out)["rows"][0]["policy"] == "fifo"
    assert "cannot write figures here" in output.err


def test_a_policy_that_leaves_jobs_unfinished_is_never_best_and_does_not_affect_others() -> None:
    slow, fast, lazy = ([first + seed for seed in range(6)] for first in (3.0, 2.0, 1.0))
    others = [*records_of("slow", slow), *records_of("fast", fast)]
    left_some = records_of("lazy", lazy, jobs_finished=57)
    once = [*left_some[:1], *records_of("lazy", lazy)[1:]]

    def best(records: list[RunRecord]) -> list[str]:
        rows = rows_of(["slow", "fast", "lazy"], [None], records, [])
        return [row.policy for row in rows if row.metrics["jct_mean"].best]

    assert best([*others, *records_of("lazy", lazy)]) == ["lazy"]
    assert best([*others, *left_some]) == ["fast"]
    assert best([*others, *once]) == []
    one_seed_more = [record_of(policy, 6, 9.0, jobs_finished=1) for policy in ("slow", "fast", "lazy")]
    assert best([*others, *records_of("lazy", lazy), *one_seed_more]) == []


def test_best_is_not_given_across_different_assumptions() -> None:
    fast, faster, slow, slower = ([first + seed for seed in range(6)] for first in (2.0, 1.0, 3.0, 4.0))
    rules = (Assumption("fast switching", "switches cost little"),)
    tasks = [replace(record, assumed=rules) for record in records_of("tasks", faster)]
    others = [replace(record, assumed=rules) for record in records_of("more tasks", slower)]
    rounds = [*records_of("fast", fast), *records_of("slow", slow)]

    def best(records: list[RunRecord]) -> list[str]:
        rows = rows_of(["fast", "slow", "tasks", "more tasks"], [None], records, [])
        return [row.policy for row in rows if row.metrics["jct_mean"].best]

    assert best([*rounds, *records_of("tasks", faster)]) == ["tasks"]
    assert best([*rounds, *tasks]) == ["fast"]
    assert best([*rounds, *tasks, *others]) == ["fast", "tasks"]


def test_what_each_run_assumed_is_in_the_table_the_page_and_the_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    args = [*BASE, "--policies", "fifo,hlas", "--state", str(tmp_path / "state")]
    call(*args, "-o", "json", "--report", str(page))
    answer = json.loads(capsys.readouterr().out)
    call(*args, "--switching", "fast")
    table = " ".join(capsys.readouterr().out.split())

    assumed = {row["policy"]: [rule["name"] for rule in row["assumed"]] for row in answer["rows"]}
    assert assumed["fifo"] == []
    assert assumed["hlas"][0] == "single tasks"
    assert "fast switching" not in assumed["hlas"]
    notes = {run["policy"]: run["notes"] for run in answer["runs"]}
    assert notes["fifo"] == []
    assert notes["hlas"][0].startswith("single tasks of about 60 s")
    text = page.read_text(encoding="utf-8")
    assert '<span class="mark">[1]</span>' in text
    assert "The rules that all policies had" in text
    assert "hlas [1]" in table
    assert "assumed: [1] single tasks (" in table
    assert "fast switching (a GPU that changes to another job pays 3% of a task, not a restart)" in table
    assert "hlas: single tasks of about 60 s" in table


def test_policies_under_the_same_rules_are_not_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call(*BASE, "--policies", "hare-online,hlas", "--state", str(tmp_path / "state"), "--report", str(page))

    table = " ".join(capsys.readouterr().out.split())

    assert "[1]" not in table
    assert "assumed: single tasks (" in table
    assert "The same rules for all" in page.read_text(encoding="utf-8")


def test_jobs_that_never_finish_are_shown_in_the_table_the_page_the_csv_and_the_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lazy = own_policy(tmp_path, "lazy")
    text = (tmp_path / "lazy.py").read_text(encoding="utf-8")
    text = text.replace("free[t] >= view.width[j]", "free[t] >= 1 == view.width[j]")  # wider jobs never run
    (tmp_path / "lazy.py").write_text(text, encoding="utf-8")
    rows = "".join(f"j{i},u,resnet50,{i * 100},{2 if i < 3 else 1},{30000 + i}\n" for i in range(8))
    (tmp_path / "jobs.csv").write_text("id,tenant,model,arrival_s,gpus,steps\n" + rows, encoding="utf-8")
    args = ["compare", "--cluster", "v100:2,k80:2", "--trace", str(tmp_path / "jobs.csv")]
    args += ["--policies", f"fifo,{lazy}", "--state", str(tmp_path / "state")]

    assert call(*args, "--report", str(tmp_path / "page.html"), "--csv", str(tmp_path / "runs.csv")) == 0
    table = capsys.readouterr().out
    assert call(*args, "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)

    assert "lazy (3 of 8 jobs never finished)" in table
    assert "never marked best" in table
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "3 of 8 jobs never finished</span>" in page
    assert [(row["jobs_finished"], row["jobs_total"]) for row in answer["rows"]] == [(8, 8), (5, 8)]
    lines = list(csv.DictReader((tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()[1:]))
    assert [(line["jobs_finished"], line["jobs_total"]) for line in lines] == [("8", "8"), ("5", "8")]

    where = ["--cluster", "v100:2,k80:2", "--trace", str(tmp_path / "jobs.csv")]
    assert call("simulate", *where, "--policy", lazy) == 0
    shown = re.sub(r"\W+", " ", capsys.readouterr().out)  # wrapped, between the lines of the table
    assert "jobs never finished 3 the rows below cover the 5 that finished" in shown


def test_best_must_beat_every_other_one_seed_by_seed() -> None:
    def column(first: float, *more: float) -> dict[int, float | None]:
        return {s: first + s + (more[s] if s < len(more) else 0.0) for s in range(6)}

    clear = {"a": column(1.0), "b": column(1.5), "c": column(3.0)}
    near = {**clear, "b": column(1.5, -0.6)}  # at one seed b is better than a

    assert best_of(clear, "lower") == ("a", 2 / 64)
    assert best_of(clear, "higher") == ("c", 2 / 64)
    assert best_of(near, "lower") is None
    assert best_of({"a": column(1.0)}, "lower") is None
    assert best_of({"a": column(1.0), "b": column(1.0)}, "lower") is None
    assert best_of({"a": {0: 1.0}, "b": {0: 9.0}}, "lower") is None


def test_seeds_that_no_policy_looks_at_mark_no_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Tenants are drawn by seed, but neither policy looks at tenants, so six seeds are the same run six times."""
    rows = "".join(f"j{i},resnet50,{i * 100},1,{30000 + 9000 * (i % 5)}\n" for i in range(12))
    (tmp_path / "jobs.csv").write_text("id,model,arrival_s,gpus,steps\n" + rows, encoding="utf-8")
    args = ["compare", "--cluster", "v100:2,k80:2", "--trace", str(tmp_path / "jobs.csv"), "--tenants", "3"]

    assert call(*args, "--policies", "fifo,srtf", "--seeds", "0..5", "--state", str(tmp_path / "s"), "-o", "json") == 0

    answer = json.loads(capsys.readouterr().out)
    cells = [row["metrics"]["jct_mean"] for row in answer["rows"]]
    assert [row["runs"] for row in answer["rows"]] == [6, 6]
    assert cells[0]["mean"] != cells[1]["mean"]
    assert not any(cell["best"] for row in answer["rows"] for cell in row["metrics"].values())


def test_a_policy_that_failed_at_heavy_seeds_is_not_best() -> None:
    heavy = {s: s + (1.0 if s < 8 else 100.0) for s in range(12)}
    known: dict[str, dict[int, float | None]] = {
        "steady": {**heavy},
        "fragile": {s: (v + 0.5 if s < 8 else None) for s, v in heavy.items()},
    }

    assert best_of(known, "lower") == ("steady", 2 / 2**8)  # over all seeds its mean is far worse
    known["fragile"] = {s: v - 0.5 if s < 8 else None for s, v in heavy.items()}
    assert best_of(known, "lower") is None
    known["broken"] = dict.fromkeys(heavy)
    assert best_of(known, "higher") == ("steady", 2 / 2**8)


def test_what_each_policy_may_know_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = run(capsys, "--policies", "fifo,srtf", "--state", str(tmp_path / "state"))

    fifo, srtf = (policy["allowed_to_know"] for policy in answer["policies"])
    assert (fifo["job lengths"], srtf["job lengths"]) == ("no", "yes")
    assert fifo["future arrivals"] == srtf["future arrivals"] == "no"
    assert {metric.name for metric in METRICS} == set(answer["rows"][0]["metrics"])


def test_options_without_effect_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "id,tenant,model,arrival_s,gpus,steps\na,u,resnet50,0,1,30000\nb,v,resnet50,9,1,30000\n", encoding="utf-8"
    )
    more = ["--policies", "fifo", "--state", str(tmp_path / "state")]

    call("compare", "--cluster", "v100:2", "--trace", str(tmp_path / "jobs.csv"), "--tenants", "3", *more)
    assert "tenant: jobs that name one keep it; --tenants spreads only those that name none" in capsys.readouterr().out
    call(*BASE, "--loads", "0.5", *more)
    assert "--loads overrides load=1.2 of --generate" in capsys.readouterr().out
    call(*BASE, *more)
    assert "--loads overrides" not in capsys.readouterr().out
    assert call(*BASE, "--window", "90000..90001", *more) == 0
    assert "--window 90000..90001 begins after the last job ended" in capsys.readouterr().err
    call(*BASE, "--window", "0..1", *more)
    assert "--window" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--policies", "fifo"], "either --trace FILE or --generate SPEC"),
        (["--generate", "defaults", "--policies", "lifo"], 'policy "lifo" is not known'),
        (["--generate", "defaults", "--policies", ","], "--policies names no policy"),
        (["--generate", "defaults", "--policies", "fifo,fifo"], 'two policies are called "fifo"'),
        (["--generate", "defaults", "--policies", "no.py:x"], "no.py: cannot be read"),
        (["--generate", "defaults", "--policies", "fifo", "--seeds", "3..1"], "--seeds"),
        (["--generate", "defaults", "--policies", "fifo", "--loads", "0"], "--loads"),
        (["--generate", "size=3", "--policies", "fifo"], '--generate "size"'),
        (["--generate", "defaults", "--policies", "fifo", "--executor", "slurm"], "known: processes, ray"),
        (["--generate", "defaults", "--policies", "fifo", "--sensing", "all"], "--sensing"),
    ],
)
def test_invalid_options_are_refused(capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert message in refused(capsys, "compare", "--cluster", "v100:4", *args)


def test_promises_over_seeds_are_broken_if_one_is_and_name_the_causes() -> None:
    def verdict(standing: Standing, value: float, causes: dict[str, float] | None = None) -> PromiseVerdict:
        return PromiseVerdict("sharing incentive", standing, value, 0.95, ("a",), causes or {})

    kept = verdict(Standing.KEPT, 1.2)
    broken = verdict(Standing.BROKEN, 0.7, {"whole gangs": 0.75, "restarts": 0.25})
    runs = [replace(record_of("a", seed, 1.0), promises=(one,)) for seed, one in enumerate((kept, broken, kept))]

    (row,) = promises_over_seeds(runs)
    (fine,) = promises_over_seeds(runs[:1])

    assert promise_text(row) == "broken 0.7 (1 of 3 seeds): whole gangs 75%, restarts 25%"
    ahead = replace(row, causes={"restarts": 0.11, "whole gangs": 1.04, "the policy's own division": -0.15})
    causes = "whole gangs 104%, restarts 11%, offset by the policy's own division 15%"
    assert promise_text(ahead) == f"broken 0.7 (1 of 3 seeds): {causes}"
    assert promise_text(fine) == "kept 1.2"
    assert promises_over_seeds([*runs, replace(runs[0], promises=())]) == ()


def test_the_verdicts_of_a_comparison_are_those_of_the_audit(tmp_path: Path) -> None:
    request = demo_request(jobs=12)
    setup = replace(request.setup, trace=request.workload(None, 0))
    case = make_case(refer("oef-coop"), None, 0, setup, "", keep_stays=False)
    record = run_case(case)
    simulate(replace(case.setup, policy=case.policy.load()), tmp_path / "journal")

    assert list(record.promises) == audit_journal(tmp_path / "journal").promises
    assert record_from_json(record.to_json()) == record
