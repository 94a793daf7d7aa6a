"""Nothing that a user types is ignored without a word: it has an effect, or it is refused with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import Fairlead

from fairlead.service.store.directory import make, open_directory
from serving import header

TRACE = "id,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"j{i},{'xy'[i % 2]},resnet50,{300 * i},1,2000\n" for i in range(4)
)


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(TRACE)
    return tmp_path / "jobs.csv"


@pytest.fixture
def journal(trace: Path, fairlead: Fairlead) -> Path:
    path = trace.with_name("run.jsonl")
    fairlead.summary("--cluster", "v100:2", "--trace", trace, "--policy", "las", "--journal", path)
    return path


def refusal(fairlead: Fairlead, *words: object, code: int = 2) -> str:
    ended, out, err = fairlead(*words)
    assert (ended, out) == (code, ""), err
    return err


# ---- simulate --from ------------------------------------------------------------------------------------------------


def test_a_time_after_the_end_of_a_journal_is_refused(fairlead: Fairlead, journal: Path) -> None:
    assert "nothing to simulate: at 11d 13h no job is active" in refusal(
        fairlead, "simulate", "--from", f"{journal}@1000000"
    )


def test_an_end_before_the_beginning_is_refused(fairlead: Fairlead, journal: Path) -> None:
    said = refusal(fairlead, "simulate", "--from", f"{journal}@10m", "--until", "9m")

    assert "--until 9m 00s is not after 10m 00s, where the simulation begins" in said


def test_a_trace_whose_jobs_all_arrive_earlier_is_refused(fairlead: Fairlead, journal: Path, tmp_path: Path) -> None:
    early = tmp_path / "early.csv"
    early.write_text("id,tenant,model,arrival_s,gpus,steps\ne1,x,resnet50,1,1,2000\n")

    said = refusal(fairlead, "simulate", "--from", f"{journal}@10m", "--trace", early)

    assert "none of the 1 jobs of the trace arrives after 600 s" in said


# ---- simulate and compare -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("--task", "5s"), ("--switching", "fast")], ids=lambda option: option[0])
@pytest.mark.parametrize("command", [("simulate", "--policy", "las"), ("compare", "--policies", "las,fifo")])
def test_options_of_single_tasks_are_refused_for_policies_of_rounds(
    fairlead: Fairlead, trace: Path, command: tuple[str, ...], option: tuple[str, str]
) -> None:
    said = refusal(fairlead, *command, "--cluster", "v100:2", "--trace", trace, *option)

    assert f"{option[0]} has no effect: it is for policies that decide single tasks" in said


def test_a_refused_run_leaves_no_journal(fairlead: Fairlead, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "never.jsonl"
    words = ("--cluster", "v100:2", "--trace", trace, "--policy", "hlas", "--mtbf", "1h", "--journal", path)

    assert "that simulator has no failing nodes; leave out --mtbf" in refusal(fairlead, "simulate", *words)
    assert not path.exists()


def test_a_world_that_a_policy_cannot_have_is_refused_before_anything_runs(fairlead: Fairlead, trace: Path) -> None:
    words = ("--policies", "fifo,hlas", "--cluster", "v100:2", "--trace", trace, "--declared-speeds", "x=2")

    said = refusal(fairlead, "compare", *words, "--sensing", "three-layer")

    assert said == (
        "fairlead: policy hlas decides single tasks, and that simulator measures no speeds; leave out --declared-speeds\n"
    )


# ---- messages that name what is wrong -------------------------------------------------------------------------------


def test_a_part_of_a_cluster_without_a_number_is_named(fairlead: Fairlead, trace: Path) -> None:
    said = refusal(fairlead, "simulate", "--cluster", "v100:8,k80", "--trace", trace, "--policy", "fifo")

    assert said == 'fairlead: cluster "v100:8,k80": "k80" is not TYPE:GPUS or TYPE:GPUSxNODESIZE, such as v100:36x8\n'


@pytest.mark.parametrize("command", ["simulate", "serve"])
def test_a_duration_that_is_not_understood_is_named_by_its_option(
    fairlead: Fairlead, trace: Path, tmp_path: Path, command: str
) -> None:
    more = ("--trace", trace, "--policy", "fifo") if command == "simulate" else ("--state", tmp_path / "state")

    said = refusal(fairlead, command, "--cluster", "v100:8", "--round", "5x", *more)

    assert said.startswith('fairlead: --round "5x" is not understood; write seconds or parts such as 30s')


# ---- serve ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [("--warm-standbys", "1"), ("--warm-contexts",), ("--node-pace", "v100-1=0.5"), ("--emulate",), ("--look", "1s")],
)
def test_options_about_processes_are_refused_where_there_are_none(
    fairlead: Fairlead, tmp_path: Path, option: tuple[str, ...]
) -> None:
    words = ("serve", "--cluster", "v100:2", "--state", tmp_path / "state", "--engine", "pretend", *option)

    assert f"{option[0]}: no effect with --engine pretend" in refusal(fairlead, *words)
    assert not (tmp_path / "state").exists()


def test_checking_a_directory_that_does_not_exist_says_so(fairlead: Fairlead, tmp_path: Path) -> None:
    words = ("serve", "--cluster", "v100:6", "--state", tmp_path / "state", "--check")

    assert fairlead(*words) == (
        0,
        f"there is no state in {tmp_path / 'state'} yet: a start would create it, with 2 nodes and 6 GPUs\n",
        "",
    )
    make(open_directory(tmp_path / "state"), header("v100:6"))
    assert fairlead(*words) == (0, "nothing would change\n", "")


# ---- names of others ------------------------------------------------------------------------------------------------


def test_names_in_a_cluster_file_do_not_control_the_terminal(fairlead: Fairlead, tmp_path: Path) -> None:
    make(open_directory(tmp_path / "state"), header("v100:4"))
    file = tmp_path / "cluster.yaml"
    file.write_text('nodes: [{gpu: v100, gpus: 4, name: "\\e[2J"}]')

    _, out, err = fairlead("serve", "--cluster", file, "--state", tmp_path / "state", "--check")

    assert "nodes only now: \\x1b[2J-1" in out
    assert "\x1b" not in out + err


def test_all_leaves_out_the_policies_that_a_world_does_not_have_and_names_them(fairlead: Fairlead) -> None:
    """A policy that the user named is refused instead."""
    workload = ["--cluster", "v100:2", "--generate", "defaults", "--jobs", "2", "--mtbf", "500h", "--repair", "1h"]
    code, out, err = fairlead("compare", *workload, "--policies", "all", "--workers", "1", "-o", "json")

    assert code == 0, err
    answer = json.loads(out)
    names = [policy["name"] for policy in answer["policies"]]
    assert "fifo" in names
    assert "hlas" not in names
    reason = "policy hlas decides single tasks, and that simulator has no failing nodes"
    assert f"left out: {reason}" in answer["assumptions"]


# ---- serve --shadow --------------------------------------------------------------------------------------------------


def test_watching_needs_slurm_and_refuses_options_of_services_that_start_jobs(fairlead: Fairlead) -> None:
    assert "add --engine slurm" in refusal(fairlead, "serve", "--shadow", "--cluster", "v100:1")
    assert "--models: no effect without --shadow" in refusal(fairlead, "serve", "--cluster", "v100:1", "--models", "x")
    refused = refusal(fairlead, "serve", "--engine", "slurm", "--shadow", "--cluster", "v100:1", "--emulate")
    assert "--cluster, --emulate: no effect with --shadow" in refused
    refused = refusal(fairlead, "serve", "--engine", "slurm", "--shadow", "--estimates", "5%")
    assert "--estimates: no effect with --shadow" in refused
