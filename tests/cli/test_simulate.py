"""The contract of `fairlead simulate`, and its messages about wrong input."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from checker import check_journal
from fairlead.cli.main import main
from fairlead.cli.run_table import LABELS
from fairlead.cli.serve import serve
from fairlead.cli.world import WorldOptions
from fairlead.model.allocation import Level
from fairlead.policies import REGISTRY

TRACE = """\
id,tenant,model,arrival_s,gpus,steps,types
a,x,m,0,1,400,
b,x,m,10,2,300,
c,y,n,20.5,4,200,v100
d,y,n,700,1,5000,
"""
PROFILE = """\
fairlead: profile/1
name: small
models:
  m: {memory_gib: 10, restart_s: 20}
---
model,gpu,gpus,nodes,batch,rate,unit,source
m,v100,1,1,1,4,steps/s,made up
m,k80,1,1,1,1,steps/s,made up
n,v100,1,1,1,1,steps/s,made up
n,k80,1,1,1,1,steps/s,made up
q,h100,1,1,1,1,steps/s,made up
"""
CLUSTER = """\
nodes:
  - {count: 1, gpu: v100, gpus: 4, memory_gib: 16}
  - {count: 2, gpu: k80, gpus: 2}
"""
# Every key of the contract, with the keys below it.
CONTRACT: dict[str, tuple[str, ...]] = {
    "policy": (),
    "jobs_total": (),
    "jobs_finished": (),
    "makespan_s": (),
    "jct_s": ("mean", "p50", "p90", "p99", "max"),
    "wait_s": ("mean", "max"),
    "starvation_s": ("mean", "max"),
    "ftf": ("mean", "p99", "max", "share_at_most_1"),
    "ftf_isolated": ("mean", "p99", "max", "share_at_most_1"),
    "latency_ratio": ("mean", "p99", "max"),
    "latency_ratio_by_gpu_hours": (),
    "recent_latency_ratio": ("last", "max"),
    "idle_gpus_while_waiting": ("mean",),
    "gpu_utilisation": (),
    "migrations_per_job": (),
    "rounds": (),
    "decision_s": ("mean", "p99", "max", "total"),
    "cpu_s": (),
    "wall_s": (),
}


@dataclass(frozen=True)
class Completed:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(constant: str) -> float:
            raise AssertionError(f"{constant} in JSON")

        return json.loads(self.out, parse_constant=refuse)


Command = Callable[..., Completed]
Simulate = Callable[..., Completed]


@pytest.fixture
def fairlead(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, in this process: arguments in, exit code and output out."""

    def run(*arguments: str) -> Completed:
        monkeypatch.setattr(sys, "argv", ["fairlead", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        printed = capsys.readouterr()
        return Completed(code, printed.out, printed.err)

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the current one, with a cluster, a trace and a profile."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "profile.txt").write_text(PROFILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def simulate(fairlead: Command, files: Path) -> Simulate:
    """`fairlead simulate` with the files of the folder, unless an option replaces them."""

    def run(*more: str, **options: str) -> Completed:
        arguments = {"cluster": "cluster.yaml", "trace": "trace.csv", "throughputs": "profile.txt", "policy": "fifo"}
        arguments |= {name.replace("_", "-"): value for name, value in options.items()}
        return fairlead(
            "simulate", *(part for name, value in arguments.items() for part in (f"--{name}", value)), *more
        )

    return run


def complains(completed: Completed, code: int, *words: str) -> None:
    """Assert that there is one line on stderr with these words, nothing on stdout and no traceback."""
    assert completed.code == code, completed
    assert completed.out == ""
    assert completed.err.startswith("fairlead: ")
    assert completed.err.count("\n") == 1
    for word in words:
        assert word in completed.err


# ---- as a process ----------------------------------------------------------------------------------------------------


def process(folder: Path, *arguments: str) -> Completed:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return Completed(done.returncode, done.stdout, done.stderr)


def test_a_process_prints_one_json_object_and_writes_a_sound_journal(files: Path) -> None:
    arguments = "--cluster cluster.yaml --trace trace.csv --throughputs profile.txt --policy gavel --round 6m"

    completed = process(
        files, "simulate", *arguments.split(), "--restart-cost", "0s", "--journal", "j.jsonl", "-o", "json"
    )

    assert (completed.code, completed.err) == (0, "")
    assert completed.json["jobs_finished"] == 4
    check_journal(files / "j.jsonl", {"a": 400.0, "b": 600.0, "c": 800.0, "d": 5000.0})


def test_a_process_that_fails_prints_the_reason_and_returns_a_code(files: Path) -> None:
    completed = process(files, "simulate", "--cluster", "nowhere.yaml", "--trace", "trace.csv", "--policy", "fifo")

    complains(completed, 2, "nowhere.yaml")


# ---- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", REGISTRY)
def test_every_key_of_the_contract_is_there(policy: str, simulate: Simulate) -> None:
    completed = simulate("-o", "json", policy=policy)

    assert completed.code == 0, completed.err
    assert completed.json["policy"] == policy
    for name, parts in CONTRACT.items():
        assert name in completed.json
        for part in parts:
            no_job_waits = name == "idle_gpus_while_waiting" and completed.json["wait_s"]["max"] == 0.0
            if name == "decision_s" and REGISTRY[policy].level is Level.TASKS:
                assert completed.json[name][part] is None  # deciding is part of running there
            else:
                assert no_job_waits or isinstance(completed.json[name][part], float | int), (name, part)


def test_a_policy_of_single_tasks_has_a_dash_for_its_decisions(simulate: Simulate) -> None:
    completed = simulate(policy="hare-online")

    (line,) = [line for line in completed.out.splitlines() if "CPU time of a decision" in line]
    assert "mean -, p99 -, max -, total -" in line


def test_a_trace_without_jobs_is_refused(files: Path, simulate: Simulate) -> None:
    (files / "trace.csv").write_text(TRACE.splitlines()[0] + "\n")

    completed = simulate("-o", "json")

    assert (completed.code, completed.out) == (2, "")
    assert "trace has no jobs to run; there is nothing to simulate" in completed.err


def test_jobs_that_are_mostly_shorter_than_a_round_are_noted(simulate: Simulate) -> None:
    def noted(**options: str) -> bool:
        return any("are shorter than a round" in note for note in simulate("-o", "json", **options).json["assumptions"])

    assert [noted(round="1h"), noted(round="1h", decide="events"), noted(round="1m")] == [True, False, False]


def test_the_table_names_the_policy_the_trace_and_its_metrics(simulate: Simulate) -> None:
    completed = simulate()

    assert completed.code == 0
    assert "fifo on trace" in completed.out
    assert "jobs finished" in completed.out


def test_the_table_has_words_and_units_instead_of_keys(simulate: Simulate) -> None:
    summary, lines = simulate("-o", "json").json, simulate().out

    shown = set(summary) - {"policy", "tenants", "jobs_total"}
    assert shown <= set(LABELS)
    assert not re.search(r"p50|[a-z]_[a-z]|-inf", lines)
    assert re.search(rf"GPU time in use +│ {summary['gpu_utilisation']:.1%}", lines)


def test_durations_take_a_suffix(simulate: Simulate) -> None:
    in_seconds = simulate("-o", "json", round="120", restart_cost="30").json
    with_suffix = simulate("-o", "json", round="2m", restart_cost="0.5m").json

    timings = ("cpu_s", "wall_s", "decision_s")
    assert {k: v for k, v in in_seconds.items() if k not in timings} == {
        k: v for k, v in with_suffix.items() if k not in timings
    }


def test_the_restart_cost_overrides_that_of_the_profile(files: Path, simulate: Simulate) -> None:
    """The second job moves from the K80 to the V100; its profile has 20 s."""
    (files / "trace.csv").write_text("id,model,arrival_s,gpus,steps\na,m,0,1,400\nb,m,0,1,40000\n")

    ends = [
        simulate("-o", "json", cluster="v100:1,k80:1", **more).json["makespan_s"]
        for more in ({}, {"restart_cost": "0s"}, {"restart_cost": "100s"})
    ]

    assert ends[0] - ends[1] == pytest.approx(20.0)
    assert ends[2] - ends[1] == pytest.approx(100.0)


def test_deciding_at_events_starts_jobs_at_once(simulate: Simulate) -> None:
    at_rounds, at_events = (simulate("-o", "json", decide=when).json for when in ("rounds", "events"))

    assert at_events["starvation_s"]["mean"] < at_rounds["starvation_s"]["mean"]
    assert at_events["decisions"] > at_rounds["decisions"]


def test_the_same_seed_writes_the_same_journal(files: Path, simulate: Simulate) -> None:
    world = {"mtbf": "1h", "repair": "5m", "server_factors": "0.7:1.1", "length_error": "0.2"}
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        assert simulate(policy="srtf", seed=seed, journal=name, **world).code == 0

    assert (files / "one").read_bytes() == (files / "again").read_bytes()
    assert (files / "one").read_text().splitlines()[1:] != (files / "other").read_text().splitlines()[1:]


def test_a_parameter_of_the_policy_is_used(files: Path, simulate: Simulate) -> None:
    simulate(policy="las", param="queues_gpu_s=10,20", journal="j")

    header = json.loads((files / "j").read_text().splitlines()[0])
    assert header["parameters"] == {"queues_gpu_s": [10.0, 20.0]}


def test_a_parameter_without_a_default_is_read_as_a_number(files: Path, simulate: Simulate) -> None:
    simulate(policy="hops", param="power=2", journal="j")

    header = json.loads((files / "j").read_text().splitlines()[0])
    assert header["parameters"]["power"] == 2.0


def test_the_sensing_is_recorded_in_the_journal(files: Path, simulate: Simulate) -> None:
    completed = simulate(policy="hops", sensing="three-layer", server_factors="0.75:1.05", journal="j")

    assert completed.code == 0, completed.err
    assert json.loads((files / "j").read_text().splitlines()[0])["sensing"] == "three-layer"


def test_the_weights_of_tenants_are_recorded_in_the_journal(files: Path, simulate: Simulate) -> None:
    simulate("--tenant-weight", "x=2", "--tenant-weight", "y=0.5", journal="j", policy="gavel")

    assert json.loads((files / "j").read_text().splitlines()[0])["tenant_weight"] == {"x": 2.0, "y": 0.5}


# ---- jobs that can never run -------------------------------------------------------------------------------------------


IMPOSSIBLE = """\
id,model,arrival_s,gpus,steps,types
good,m,0,1,10,
wide,m,0,64,10,
elsewhere,m,0,1,10,h100
unmeasured,q,0,1,10,
"""


def test_jobs_that_can_never_run_are_refused_by_name(files: Path, simulate: Simulate) -> None:
    (files / "trace.csv").write_text(IMPOSSIBLE)

    completed = simulate("-o", "json")

    assert (completed.code, completed.out) == (5, "")
    assert completed.err.startswith("fairlead: 3 of 4 jobs can never run")
    assert "job wide: it needs 64 GPUs of one type, the largest type that it may use has 4" in completed.err
    assert "job elsewhere: it allows only h100, the cluster has v100, k80" in completed.err
    assert "job unmeasured: the profile has no speed of q at 1 GPUs on any of v100, k80" in completed.err
    assert "--skip-impossible" in completed.err


def test_a_job_that_needs_more_memory_than_any_gpu_has_is_refused(files: Path, simulate: Simulate) -> None:
    (files / "profile.txt").write_text(PROFILE.replace("memory_gib: 10", "memory_gib: 40"))

    completed = simulate()

    assert completed.code == 5
    assert "job a: m needs 40 GiB per GPU, the largest GPU that it may use has 16" in completed.err


def test_impossible_jobs_can_be_left_out_and_are_counted(files: Path, simulate: Simulate) -> None:
    (files / "trace.csv").write_text(IMPOSSIBLE)

    completed = simulate("--skip-impossible", "-o", "json")

    assert completed.code == 0
    assert "left out 3 jobs" in completed.err
    assert (completed.json["jobs_total"], completed.json["jobs_skipped"]) == (1, 3)


# ---- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["cluster", "trace", "throughputs"])
def test_a_missing_file_is_named(option: str, simulate: Simulate) -> None:
    complains(simulate(**{option: "gone.txt"}), 2, "gone.txt")


@pytest.mark.parametrize("option", ["cluster", "trace", "throughputs", "journal"])
def test_a_folder_is_no_file(option: str, files: Path, simulate: Simulate) -> None:
    (files / "folder").mkdir()

    complains(simulate(**{option: "folder"}), 2, "folder")


def test_an_unknown_policy_is_refused_with_the_nearest_and_where_the_names_are(simulate: Simulate) -> None:
    complains(simulate(policy="lifo"), 2, '"lifo"', 'did you mean "fifo"', "`fairlead policies`")


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("sensing_noise", "0.1", "--sensing"),
        ("report_every", "1m", "--sensing"),
        ("measure_new", "1m", "--sensing"),
        ("repair", "2h", "--mtbf"),
    ],
)
def test_an_option_without_effect_is_refused_with_what_it_needs(
    option: str, value: str, needed: str, simulate: Simulate
) -> None:
    flag = "--" + option.replace("_", "-")
    complains(simulate(**{option: value}), 2, f"{flag} has no effect without {needed}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("round", "0"),
        ("round", "soon"),
        ("round", "-5"),
        ("round", "nan"),
        ("min_run", "-1s"),
        ("restart_cost", "inf"),
        ("decide", "sometimes"),
        ("sensing", "smell"),
        ("server_factors", "fast"),
        ("server_factors", "0:1"),
        ("length_error", "1.5"),
        ("length_error", "nan"),
        ("checkpoint_every", "0"),
        ("repair", "0s"),
        ("mtbf", "often"),
        ("tenant_weight", "x"),
        ("tenant_weight", "x=0"),
        ("tenant_weight", "x=nan"),
        ("param", "queues=1"),
        ("cluster", "v100:zero"),
        ("cluster", "v100:0"),
        ("cluster", "warp9:4"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(option: str, value: str, simulate: Simulate) -> None:
    complains(simulate(**{option: value}), 2)


@pytest.mark.parametrize(("option", "value"), [("seed", "-1"), ("seed", "x"), ("length_error", "x"), ("output", "xml")])
def test_a_value_of_the_wrong_kind_is_a_usage_error(option: str, value: str, simulate: Simulate) -> None:
    completed = simulate(**{option: value})

    assert completed.code == 2
    assert "Traceback" not in completed.err


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        (2, "a,x,m,zero,1,400,"),
        (2, "a,x,m,nan,1,400,"),
        (2, "a,x,m,-1,1,400,"),
        (2, "a,x,m,0,0,400,"),
        (2, "a,x,m,0,1.5,400,"),
        (2, "a,x,m,0,-1,400,"),
        (2, "a,x,m,0,999999999,400,"),
        (2, "a,x,m,0,1,0,"),
        (2, "a,x,m,0,1,-3,"),
        (2, "a,x,m,0,1,inf,"),
        (2, "a,x,m,0,1,1e300,"),
        (2, ",x,m,0,1,400,"),
        (2, "a,x,,0,1,400,"),
        (2, "a,x,zebra,0,1,400,"),
        (2, "a,x,m,0"),
        (2, "a,x,m,0,1,400,,,,,extra"),
        (3, "a,x,m,10,2,300,"),  # the same id twice
    ],
)
def test_a_bad_line_of_a_trace_is_named(line: int, bad: str, files: Path, simulate: Simulate) -> None:
    lines = TRACE.splitlines()
    lines[line - 1] = bad
    (files / "trace.csv").write_text("\n".join(lines) + "\n")

    complains(simulate(), 2, f"trace.csv line {line}:")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("m,v100,1,1,1,4,", "m,v100,1,1,1,nan,", 7),
        ("m,v100,1,1,1,4,", "m,v100,1,1,1,-4,", 7),
        ("m,v100,1,1,1,4,", "m,v100,1,1,1,fast,", 7),
        ("m,v100,1,1,1,4,", "m,v100,1,1,1,1e99,", 7),
        ("m,v100,1,1,1,4,", "m,v100,1,1,0,4,", 7),
        ("m,v100,1,1,1,4,", "m,v100,0,1,1,4,", 7),
        ("m,v100,1,1,1,4,", "m,v100,1,2,1,4,", 7),
        ("m,v100,1,1,1,4,steps/s,made up", "m,v100,1,1,1,4,steps/s,", 7),
        ("m,v100,1,1,1,4,steps/s", "m,v100,1,1,1,4,steps", 7),
        ("m,k80,1,1,1,1,", "m,v100,1,1,1,1,", 8),
        ("restart_s: 20", "restart_s: -20", 4),
        ("memory_gib: 10", "memory_gib: .nan", 4),
        ("memory_gib: 10", "memory: 10", 4),
        ("profile/1", "profile/9", 1),
    ],
)
def test_a_bad_line_of_a_profile_is_named(old: str, new: str, line: int, files: Path, simulate: Simulate) -> None:
    assert old in PROFILE
    (files / "profile.txt").write_text(PROFILE.replace(old, new))

    complains(simulate(), 2, f"profile.txt line {line}:")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("count: 1", "count: 0", 2),
        ("count: 1", "count: -1", 2),
        ("count: 1", "count: 1.5", 2),
        ("count: 1", "count: many", 2),
        ("count: 1", "count: 99999999999", 2),
        ("gpus: 4", "gpus: 0", 2),
        ("gpus: 4", "gpus: .nan", 2),
        ("gpus: 4", "gpsu: 4", 2),
        ("memory_gib: 16", "memory_gib: -16", 2),
        ("memory_gib: 16", "memory_gib: .inf", 2),
        ("gpu: k80", "gpu: warp9", 3),
        ("nodes:", "nodes: [", 2),
    ],
)
def test_a_bad_line_of_a_cluster_is_named(old: str, new: str, line: int, files: Path, simulate: Simulate) -> None:
    assert old in CLUSTER
    (files / "cluster.yaml").write_text(CLUSTER.replace(old, new, 1))

    complains(simulate(), 2, f"cluster.yaml line {line}:")


@pytest.mark.parametrize("name", ["cluster.yaml", "trace.csv", "profile.txt"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe binary \x80", b"[1, 2", b"\n\n\n"], ids=repr)
def test_a_file_of_something_else_is_refused(name: str, content: bytes, files: Path, simulate: Simulate) -> None:
    (files / name).write_bytes(content)

    complains(simulate(), 2, name)


# ---- other commands ----------------------------------------------------------------------------------------------------


def test_policies_are_listed_with_a_sentence_and_a_paper(fairlead: Command) -> None:
    entries = fairlead("policies", "-o", "json").json

    assert [entry["name"] for entry in entries] == list(REGISTRY)
    assert all(entry["summary"] and entry["paper"] for entry in entries)


def test_policies_are_listed_as_a_table(fairlead: Command) -> None:
    completed = fairlead("policies")

    assert completed.code == 0
    assert all(name in completed.out for name in REGISTRY)


def test_the_version_is_printed(fairlead: Command) -> None:
    import fairlead as package

    assert fairlead("version", "-o", "json").json == {"version": package.__version__}
    assert fairlead("version").out == f"fairlead {package.__version__}\n"


def test_a_generated_trace_can_be_simulated(files: Path, fairlead: Command, simulate: Simulate) -> None:
    made = fairlead("trace", "generate", "--cluster", "v100:4", "--jobs", "5", "--out", "made.csv", "-o", "json")

    completed = fairlead(
        "simulate", "--cluster", "v100:4", "--trace", "made.csv", "--policy", "fifo", "--skip-impossible", "-o", "json"
    )

    assert made.json["jobs"] == 5
    assert completed.json["jobs_total"] + completed.json["jobs_skipped"] == 5


def test_without_a_command_help_is_shown(fairlead: Command) -> None:
    completed = fairlead()

    assert completed.code == 2
    assert "simulate" in completed.out + completed.err


def test_nodes_join_and_leave_by_a_file(files: Path, simulate: Simulate) -> None:
    (files / "changes.csv").write_text("time,change,node,gpu,gpus\n10m,add,new,v100,4\n20m,remove,k80-1,,\n")

    completed = simulate(cluster_changes="changes.csv", journal="journal", output="json")

    assert completed.json["jobs_finished"] == 4
    assert {"node_added", "node_removed"} <= check_journal(files / "journal").records.keys()


def test_a_file_of_changes_that_is_wrong_is_named(files: Path, simulate: Simulate) -> None:
    (files / "changes.csv").write_text("time,change,node,gpu,gpus\n10m,shrink,new,v100,4\n")

    complains(simulate(cluster_changes="changes.csv"), 2, "changes.csv", "line 2", "shrink")


@pytest.mark.parametrize("name", ["round_", "min_run"])
def test_the_help_of_the_simulator_names_the_defaults_of_a_service_that_differ(name: str) -> None:
    live = inspect.signature(serve).parameters[name].default
    (field,) = [field for field in fields(WorldOptions) if field.name == name]
    annotation = get_type_hints(WorldOptions, include_extras=True)[name]

    assert field.default != live
    assert f"{live} in `fairlead serve`" in annotation.__metadata__[0].help
