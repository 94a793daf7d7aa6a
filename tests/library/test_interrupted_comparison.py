"""A comparison as people run it: several traces, policies with parameters, seeds, and an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fairlead
from fairlead.traces.formats import write_trace
from waiting import wait_for

POLICY = """
import os, time
from fairlead.policies import ROUND_POLICIES

def allocate(view, memory):
    while not os.path.exists({go!r}):
        time.sleep(0.02)
    return ROUND_POLICIES["fifo"].allocate(view, memory)

from dataclasses import replace
mine = replace(ROUND_POLICIES["fifo"], name="mine", allocate=allocate)
"""
CLUSTER, SEEDS, FACTORS = "v100:2,k80:2", (0, 1), "0.8:1"


@pytest.mark.slow
def test_three_traces_times_four_policies_times_two_seeds_survive_a_kill_and_are_read_as_parquet(
    tmp_path: Path,
) -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    traces = [str(tmp_path / f"{name}.csv") for name in ("calm", "busy", "crowded")]
    for path, load in zip(traces, (0.5, 1.0, 2.0), strict=True):
        write_trace(fairlead.generate(CLUSTER, jobs=6, load=load, durations="gavel"), path)
    go, own = tmp_path / "go", tmp_path / "own.py"
    own.write_text(POLICY.format(go=str(go)), encoding="utf-8")
    policies = ["las:queues_gpu_s=600", "fft:kappa=2", "gavel-hierarchical:inside=fifo", f"{own}:mine"]
    state = tmp_path / "state"
    command = [sys.executable, "-m", "fairlead.cli.main", "compare", "--cluster", CLUSTER, "--seeds", "0,1"]
    command += [word for path in traces for word in ("--trace", path)]
    command += ["--policies", ",".join(policies), "--workers", "2", "--state", str(state)]
    command += ["--server-factors", FACTORS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: list(state.rglob("*.json")) or process.poll() is not None, "a run to be kept")
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        go.touch()
    kept = len(list(state.rglob("*.json")))

    compared = fairlead.compare(
        CLUSTER, policies, trace=traces, seeds=SEEDS, workers=1, state=state, server_factors=FACTORS
    )

    found = sum(setting.comparison.answer.runs_found_done for setting in compared.settings)
    assert 1 <= kept <= found < 24
    names = [*policies[:3], "mine"]
    expected = [(trace, seed, policy) for trace in traces for seed in SEEDS for policy in names]
    path = str(tmp_path / "runs.parquet")
    compared.runs.to_parquet(path)
    for rows in (polars.read_parquet(path).to_dicts(), pandas.read_parquet(path).to_dict("records")):
        assert [(row["trace"], row["seed"], row["policy"]) for row in rows] == expected
