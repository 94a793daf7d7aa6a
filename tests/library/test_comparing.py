"""`fairlead.compare`: policies with parameters and of one's own, several traces and clusters, and tables over seeds."""

from __future__ import annotations

import csv
import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlead
from fairlead.cli.compare import Running
from fairlead.cli.compare import compare as command
from fairlead.cli.main import main
from fairlead.library.own_policies import split_policies
from fairlead.library.reading import Reading
from fairlead.library.rules import WorldRules
from fairlead.model.allocation import Grants
from fairlead.model.errors import InputError
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.traces.formats import write_trace

SMALL, LARGE = "v100:2,k80:2", "v100:4"


@fairlead.policy(level="grants")
def mine(view: Any, memory: None, /) -> tuple[Grants, None]:
    """Serves jobs in order."""
    free, rows = view.capacity.copy(), list[tuple[int, int, int]]()
    for j in range(view.jobs):
        for t in np.flatnonzero(view.rate[j]).tolist():
            if free[t] >= view.width[j]:
                free[t] -= view.width[j]
                rows.append((j, t, view.width[j]))
                break
    return Grants(*np.array(rows, dtype=np.int64).reshape(-1, 3).T), None


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("traces")
    for seed in (1, 2):
        made = fairlead.generate(SMALL, jobs=8, load=1.5, tenants=2, durations="gavel", width={1: 1}, seed=seed)
        write_trace(made, folder / f"week{seed}.csv")
    return [folder / "week1.csv", folder / "week2.csv"]


@pytest.fixture(scope="module")
def compared(traces: list[Path], tmp_path_factory: pytest.TempPathFactory) -> fairlead.Comparison:
    """Two traces on two clusters, with three policies, one of them twice and one of this process."""
    policies: list[Any] = ["las", "las:queues_gpu_s=60", mine]
    state = tmp_path_factory.mktemp("state")
    return fairlead.compare([SMALL, LARGE], policies, trace=traces, workers=1, state=state, audit=True)


def run_command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["fairlead", "compare", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_keywords_have_the_names_and_defaults_of_the_options() -> None:
    mine = {name: one.default for name, one in inspect.signature(fairlead.compare).parameters.items()}
    options = {name: one.default for name, one in inspect.signature(command).parameters.items()}
    for name in mine.keys() - {"progress", "options", "cluster", "policies", "vary"}:  # varied in a study file
        assert mine[name] == options[name], name
    assert {field.name for field in fields(Running)} <= mine.keys()
    world = {field.name.rstrip("_") for kind in (WorldRules, Reading) for field in fields(kind)}
    files = {"report", "figures", "window", "csv", "jobs_csv", "output"}
    assert {name.rstrip("_") for name in options} - mine.keys() - world == files


def test_each_trace_and_cluster_is_a_setting_with_every_policy(
    compared: fairlead.Comparison, traces: list[Path]
) -> None:
    rows = list(compared.table.rows())
    names = ["las", "las:queues_gpu_s=60", "mine"]

    assert [(row["trace"], row["cluster"], row["policy"]) for row in rows] == [
        (str(trace), cluster, name) for trace in traces for cluster in (SMALL, LARGE) for name in names
    ]
    assert len(compared.runs) == 12
    assert not compared.failures


def test_a_run_of_a_comparison_is_the_run_alone(compared: fairlead.Comparison, traces: list[Path]) -> None:
    for policy in ("las", "las:queues_gpu_s=60", mine):
        alone = fairlead.simulate(SMALL, traces[1], policy)
        name = policy if isinstance(policy, str) else policy.name
        (row,) = compared.runs.where(trace=str(traces[1]), cluster=SMALL, policy=name).rows()

        assert row["jct_mean_s"] == pytest.approx(alone.summary["jct_s"]["mean"])
        assert row["restarts"] == alone.summary["restarts_per_job"]
        assert row["idle_while_waiting"] == alone.summary["idle_gpus_while_waiting"]["mean"]
        assert row["envy_max"] == alone.audit.max_envy
        assert row["sharing_incentive_min"] == alone.audit.min_sharing_incentive


def test_tables_have_units_and_tenants(compared: fairlead.Comparison) -> None:
    assert compared.table.units["jct_mean_s"] == "s"
    assert compared.runs.units["envy_max"] == "ratio"
    assert set(compared.tenants["tenant"].tolist()) == {"tenant-1", "tenant-2"}
    assert "means over seeds" in compared._repr_html_()


def test_the_jobs_of_all_runs_are_one_table_and_one_file(compared: fairlead.Comparison, tmp_path: Path) -> None:
    jobs = compared.jobs
    for run in compared.runs.rows():
        mine = jobs.where(**{name: run[name] for name in ("trace", "cluster", "policy", "seed")})
        assert len(mine) == run["jobs_finished"]
        assert mine["jct_s"].mean() == pytest.approx(run["jct_mean_s"])
        assert np.nanmax(mine["ftf"]) == pytest.approx(run["ftf_max"])

    compared.write_jobs_csv(tmp_path / "jobs.csv")

    kind, *lines = (tmp_path / "jobs.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert kind == "# fairlead: compare-jobs/1"
    assert [(row["policy"], row["job"]) for row in rows] == [(row["policy"], row["job"]) for row in jobs.rows()]
    assert float(rows[0]["jct_s"]) == jobs["jct_s"][0]


def test_the_best_is_bold_only_where_the_paired_test_supports_it(tmp_path: Path) -> None:
    policies = ["srtf", "las"]
    few = fairlead.compare(SMALL, policies, generate={"load": 2}, jobs=8, seeds=2, workers=1, state=tmp_path)
    many = fairlead.compare(SMALL, policies, generate={"load": 2}, jobs=8, seeds="0..7", workers=1, state=tmp_path)

    assert "textbf" not in few.table.to_latex()
    cell = many.row("srtf").metrics["jct_mean"]
    assert cell.best
    first = many.table.select("policy", "jct_mean_s").to_latex().splitlines()[4]
    assert ("textbf" in first) == cell.best
    assert first.startswith("srtf & ")
    assert (cell.p is not None and cell.p < 0.05) == cell.best


def test_finished_runs_are_kept_except_those_of_policies_of_this_process(traces: list[Path], tmp_path: Path) -> None:
    def found() -> int:
        policies: list[Any] = ["fifo", mine]
        return fairlead.compare(SMALL, policies, trace=traces[0], workers=1, state=tmp_path).answer.runs_found_done

    assert (found(), found()) == (0, 1)
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_a_trace_that_has_been_read_gives_the_same_numbers_as_its_file(traces: list[Path], tmp_path: Path) -> None:
    value = fairlead.read_trace(traces[0])
    by_value, by_file = (
        fairlead.compare(SMALL, "fifo", trace=trace, loads=[1.2], workers=1, state=tmp_path)
        for trace in (value, traces[0])
    )

    assert by_value.runs["jct_mean_s"].tolist() == by_file.runs["jct_mean_s"].tolist()
    assert by_value.table["load"].tolist() == [1.2]


def test_a_script_needs_no_guard_around_a_comparison(tmp_path: Path, traces: list[Path]) -> None:
    """The processes of the pool must not run the script that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import fairlead\nprint('once')\n"
        f"print(len(fairlead.compare({SMALL!r}, 'fifo', trace={str(traces[0])!r}, workers=1, state={str(tmp_path)!r}).runs))"
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert (done.stdout.split(), done.stderr) == (["once", "1"], "")


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("all,mine.py:policy,fft:kappa=2", ["all", "mine.py:policy", "fft:kappa=2"]),
        ("las:queues_gpu_s=3600,36000,fifo", ["las:queues_gpu_s=3600,36000", "fifo"]),
        ("fft:kappa=2,costs=paper, las", ["fft:kappa=2,costs=paper", "las"]),
        ("fifo,2nd.py:mine", ["fifo", "2nd.py:mine"]),
        (" , ", []),
    ],
)
def test_commas_separate_policies_and_their_parameters(text: str, policies: list[str]) -> None:
    assert split_policies(text) == policies


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"policies": "las:speed=2"}, 'policy las has no parameter "speed"'),
        ({"policies": "las,las"}, 'two policies are called "las"'),
        ({"policies": []}, "--policies names no policy"),
        ({"policies": [3]}, "a policy is a name, FILE.py:NAME or a policy, not a int"),
        ({"cluster": [SMALL, SMALL]}, f'--cluster "{SMALL}" appears twice; name each once'),
        ({"generate": "defaults"}, "give either --trace FILE or --generate SPEC"),
        ({"trace": None}, "give either --trace FILE or --generate SPEC"),
        ({"seeds": [1, 1]}, '--seeds "1,1": expected 0..9'),
        ({"loads": [0]}, '--loads "0": expected different numbers above 0'),
        ({"executor": "threads"}, '--executor "threads" is not known'),
    ],
)
def test_mistakes_have_the_messages_of_the_command_line(
    traces: list[Path], tmp_path: Path, keywords: dict[str, Any], message: str
) -> None:
    usual = {"cluster": SMALL, "policies": "las", "trace": traces[0], "workers": 1, "state": tmp_path}
    with pytest.raises(InputError) as refused:
        fairlead.compare(**{**usual, **keywords})

    assert message in str(refused.value)


def test_the_command_compares_every_trace_on_every_cluster(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", traces[0], "--trace", traces[1], "--cluster", SMALL, "--workers", 1, "--state", tmp_path / "s"]
    runs, page = tmp_path / "runs.csv", tmp_path / "page.html"
    words += ["--policies", "fifo,las:queues_gpu_s=60", "--csv", runs, "--report", page, "-o", "json"]

    assert run_command(monkeypatch, *words) == 0

    answer = json.loads(capsys.readouterr().out)
    assert [one["labels"]["trace"] for one in answer["settings"]] == list(map(str, traces))
    assert answer["files"]["report"] == f"{tmp_path / 'page-1.html'}, {tmp_path / 'page-2.html'}"
    assert (tmp_path / "page-2.html").stat().st_size > 0
    lines = list(csv.DictReader(runs.read_text().splitlines()[1:]))
    assert [(line["trace"], line["policy"]) for line in lines] == [
        (str(trace), name) for trace in traces for name in ("fifo", "las:queues_gpu_s=60")
    ]
    assert lines[0]["envy_max"] == ""  # not asked for


def test_an_option_that_takes_one_value_is_refused_if_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--cluster", SMALL, "--policies", "fifo", "--policies", "las", "--generate", "defaults"]

    assert run_command(monkeypatch, *words) == 2
    assert capsys.readouterr().err == (
        "fairlead: --policies appears 2 times and takes one value; leave out all but one\n"
    )


def test_audits_in_a_comparison_are_those_of_the_journal(
    compared: fairlead.Comparison, traces: list[Path], tmp_path: Path
) -> None:
    fairlead.simulate(LARGE, traces[0], "las", journal=tmp_path / "run.jsonl")
    (row,) = compared.runs.where(trace=str(traces[0]), cluster=LARGE, policy="las").rows()

    assert row["sharing_incentive_mean"] == audit_journal(tmp_path / "run.jsonl").mean_sharing_incentive
