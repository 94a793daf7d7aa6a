"""The row of a comparison that shows what the scheduler of the trace did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.model.errors import InputError
from fairlead.traces.formats import read_trace, write_trace
from fairlead.traces.profiles import load_default_profile

HEAD = "JobID|Account|State|Submit|Start|ElapsedRaw|AllocTRES|NodeList|Partition|JobName\n"
NODES = "NODELIST|GRES\ngpu[01-02]|gpu:v100:2\n"
# a waits 10 s and runs 100 s; b waits 100 s for a's GPUs and runs 50 s; c runs on both nodes at once
JOBS = (
    "1|red|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|100|gres/gpu:v100=2,gres/gpu=2,node=1|gpu01|p|train|a\n"
    "2|blue|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:01:50|50|gres/gpu:v100=2,gres/gpu=2,node=1|gpu01|p|bert-2\n"
    "3|blue|COMPLETED|2026-01-01T00:02:40|2026-01-01T00:02:40|60|gres/gpu:v100=4,gres/gpu=4,node=2|gpu[01-02]|p|bert-3\n"
)
STRANGERS = (
    "4|blue|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:00:20|50|gres/gpu:v100=2,gres/gpu=2,node=1|gpu77|p|elsewhere\n"
    "5|blue|COMPLETED|2026-01-01T00:00:20|2026-01-01T00:00:20|50|gres/gpu:v100=2,gres/gpu=2,node=1|gpu01|p|overlaps\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.txt").write_text(HEAD + JOBS)
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "models.yaml").write_text('"bert-*": bert-base\n')
    return tmp_path


def compare(folder: Path, *more: str) -> dict[str, object]:
    words = [
        "--cluster",
        f"{folder}/nodes.txt",
        "--trace",
        f"{folder}/jobs.txt",
        "--policies",
        "fifo",
        "--workers",
        "1",
    ]
    done = CliRunner().invoke(app, ["compare", *words, *more, "-o", "json"])
    assert done.exit_code == 0, done.output
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def past_run(answer: dict[str, object]) -> dict[str, object]:
    runs: list[dict[str, object]] = answer["runs"]  # type: ignore[assignment]
    return next(run for run in runs if run["policy"] == "as it was")


def test_times_and_gpus_are_those_of_the_trace(folder: Path) -> None:
    summary = past_run(compare(folder))["summary"]

    assert isinstance(summary, dict)
    assert (summary["jobs_total"], summary["jobs_finished"]) == (3, 3)
    assert summary["jct_s"]["mean"] == pytest.approx((110 + 150 + 60) / 3)
    assert summary["wait_s"]["mean"] == pytest.approx((10 + 100 + 0) / 3)
    assert summary["makespan_s"] == pytest.approx(220)
    assert summary["gpu_utilisation"] == pytest.approx((200 + 100 + 240) / (4 * 220))
    assert summary["tenants"]["blue"]["gpu_hours"] == pytest.approx((100 + 240) / 3600)


def test_jobs_whose_place_is_unknown_are_counted_and_never_run(folder: Path) -> None:
    (folder / "jobs.txt").write_text(HEAD + JOBS + STRANGERS)

    run = past_run(compare(folder))

    summary = run["summary"]
    assert isinstance(summary, dict)
    assert (summary["jobs_total"], summary["jobs_finished"]) == (5, 3)
    assert run["notes"] == [
        "as it was: 1 job without a start or on nodes that the cluster does not have",
        "as it was: 1 job on GPUs that other jobs held at the time",
    ]


def test_it_is_never_ranked_with_simulated_policies(folder: Path) -> None:
    rows = compare(folder)["rows"]
    assert isinstance(rows, list)
    assert [(row["policy"], [rule["name"] for rule in row["assumed"]]) for row in rows] == [
        ("fifo", []),
        ("as it was", ["as it was"]),
    ]


def test_a_trace_without_starts_has_no_such_row(folder: Path) -> None:
    (folder / "jobs.txt").write_text((HEAD + JOBS).replace("|Start|", "|Began|"))
    assert len(compare(folder)["rows"]) == 1  # type: ignore[arg-type]


def test_what_happened_survives_a_conversion(folder: Path) -> None:
    profile, names = load_default_profile(), [("bert-*", "bert-base")]
    trace = read_trace(folder / "jobs.txt", profile=profile, models=names)
    write_trace(trace, folder / "own.csv")
    again = read_trace(folder / "own.csv", profile=profile)
    write_trace(again, folder / "twice.csv")

    assert again.past == trace.past
    assert trace.past["3"].hosts == ("gpu01", "gpu02")
    assert trace.past["1"].name == "train|a"
    assert [trace.past[job].model_from for job in ("1", "2", "3")] == ["drawn", "name", "name"]
    assert [job.model for job in trace.jobs[1:]] == ["bert-base", "bert-base"]
    assert (folder / "own.csv").read_text().split("\n")[-4:] == (folder / "twice.csv").read_text().split("\n")[-4:]


def test_a_pattern_for_a_model_that_nobody_knows_is_refused(folder: Path) -> None:
    with pytest.raises(
        InputError, match=r'"bert-\*" is mapped to "bert-bas", which is not in the profile; .*bert-base'
    ):
        read_trace(folder / "jobs.txt", profile=load_default_profile(), models=[("bert-*", "bert-bas")])
