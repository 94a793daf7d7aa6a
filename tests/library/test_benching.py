"""`fairlead bench`: a set of workloads that does not change without its version, and scores that follow from the runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import fairlead
from fairlead.cli.main import main
from fairlead.library.benching import SEEDS, VERSION, WORKLOADS, BenchWorkload

BURSTS = next(one for one in WORKLOADS if one.name == "bursts")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs are kept, so that each is made once."""
    return tmp_path_factory.mktemp("runs")


def jobs_of(workload: BenchWorkload, seed: int) -> list[str]:
    trace = fairlead.generate(workload.cluster, jobs=workload.jobs, seed=seed, **workload.generate)
    return [f"{job.tenant} {job.model} {job.gpus} {job.arrival_s:.0f} {job.steps:.0f}" for job in trace.jobs]


def test_another_set_of_jobs_needs_another_version() -> None:
    """If this fails, score cards of before and after cannot be compared: raise VERSION, and then change this."""
    text = "\n".join(line for workload in WORKLOADS for seed in SEEDS for line in jobs_of(workload, seed))

    assert (VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == ("bench/1", "1752eb80726c0b89")


def test_scores_follow_from_the_runs(state: Path) -> None:
    card = fairlead.bench("fifo", workloads=["bursts"], state=state, workers=1)
    runs = fairlead.compare(
        BURSTS.cluster,
        "las,fifo",
        generate=dict(BURSTS.generate),
        jobs=BURSTS.jobs,
        seeds=list(SEEDS),
        audit=True,
        state=state,
        workers=1,
    ).runs

    reference, score = card.overall
    assert (reference.policy, score.policy) == ("las", "fifo")
    assert reference.jct_ratio == pytest.approx(1.0)
    of_fifo, of_las = runs.where(policy="fifo"), runs.where(policy="las")
    ratio = of_fifo["jct_mean_s"] / of_las["jct_mean_s"]
    assert score.jct_ratio == pytest.approx(np.exp(np.log(ratio).mean()))
    assert score.ftf_max == pytest.approx(of_fifo["ftf_max"].max())
    assert score.ftf_mean == pytest.approx(of_fifo["ftf_mean"].mean())
    assert score.envy == pytest.approx(of_fifo["envy_max"].mean())
    assert score.unfinished == 0
    assert card.table["policy"].tolist() == ["las", "fifo"]


def test_the_command_prints_the_card(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*more: str) -> str:
        words = ["bench", "--policies", "las,fifo", "--workload", "bursts", "--state", str(state), "--workers", "1"]
        monkeypatch.setattr("sys.argv", ["fairlead", *words, *more])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    document = json.loads(run("-o", "json"))
    assert document["fairlead"] == VERSION
    assert [one["policy"] for one in document["overall"]] == ["las", "fifo"]
    assert [one["workload"] for one in document["scores"]] == ["bursts", "bursts"]
    table = run()
    assert "JCT to las" in table
    assert f"{document['overall'][1]['jct_ratio']:.3f}" in table


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(fairlead.FairleadError, match='no workload "bursty" in bench/1; it has: steady, crowded'):
        fairlead.bench(workloads=["bursty"])
