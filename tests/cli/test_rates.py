"""`fairlead rates`, and a run whose speeds come from the profile in docs/formats.md."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.main import main
from fairlead.studies.journals.replaying import replay_journal

DOCUMENTED = Path(__file__).parents[2] / "docs" / "formats.md"
TRACE = "id,tenant,model,arrival_s,gpus,steps,widths\na,x,resnet50,0,4,4000,2|4|8\nb,y,resnet50,10,1,9000,\n"


@pytest.fixture
def parts_file(tmp_path: Path) -> str:
    """The second example of a profile in the documentation: the one with parts."""
    blocks = re.findall(r"```\n(fairlead: profile/1\n.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    (with_parts,) = [block for block in blocks if "parts:" in block]
    path = tmp_path / "parts.txt"
    path.write_text(with_parts)
    return str(path)


Completed = tuple[int, str, str]  # exit code, stdout, stderr
Command = Callable[..., Completed]


@pytest.fixture
def fairlead(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, in this process."""

    def run(*words: str) -> Completed:
        monkeypatch.setattr(sys, "argv", ["fairlead", *words])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return (code, *capsys.readouterr())

    return run


def read_json(completed: Completed) -> Any:
    assert completed[0] == 0, completed
    return json.loads(completed[1])


def test_at_reports_the_rule_behind_a_rate(parts_file: str, fairlead: Command) -> None:
    def layers(gpus: int, nodes: int) -> dict[str, str]:
        words = ("rates", "at", "resnet50", str(gpus), "--nodes", str(nodes), "--throughputs", parts_file)
        return {row["gpu"]: row["layer"] for row in read_json(fairlead(*words, "-o", "json"))["rates"]}

    assert layers(1, 1) == {"v100": "row", "k80": "row"}
    assert layers(8, 2) == {"v100": "formula", "k80": "spread"}


def test_show_lists_the_speeds_of_the_formula_after_the_rows(parts_file: str, fairlead: Command) -> None:
    speeds = read_json(fairlead("rates", "show", "resnet50", "--throughputs", parts_file, "-o", "json"))["speeds"]

    kinds = {(row["gpu"], row["gpus"], row["nodes"]): row["kind"] for row in speeds}
    assert kinds["v100", 1, 1] == "measured"
    assert kinds["v100", 8, 2] == "formula"
    assert ("k80", 8, 2) not in kinds


def test_a_simulation_runs_on_the_formula_and_its_journal_replays(
    parts_file: str, tmp_path: Path, fairlead: Command
) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    journal = tmp_path / "journal"
    words = ("--cluster", "v100:8x4", "--trace", str(tmp_path / "jobs.csv"), "--throughputs", parts_file)

    completed = fairlead(
        "simulate", *words, "--policy", "hops", "--sensing", "three-layer", "--journal", str(journal), "-o", "json"
    )

    assert read_json(completed)["jobs_finished"] == 2
    replayed = replay_journal(journal)
    assert replayed.decisions == replayed.same > 0


def test_learnt_reports_what_a_run_learnt_and_from_which_layer(
    parts_file: str, tmp_path: Path, fairlead: Command
) -> None:
    """Jobs b and c run on one node, a on another; one job alone decides nothing about a node."""
    (tmp_path / "jobs.csv").write_text(TRACE + "c,y,resnet50,10,1,9000,\n")
    journal = str(tmp_path / "journal")
    words = ("--cluster", "v100:16x4", "--trace", str(tmp_path / "jobs.csv"), "--throughputs", parts_file)
    world = ("--server-factors", "0.75:1.05", "--policy", "fifo", "--sensing", "three-layer", "--journal", journal)
    read_json(fairlead("simulate", *words, *world, "-o", "json"))

    nodes = read_json(fairlead("rates", "learnt", journal, "-o", "json"))["nodes"]
    job = read_json(fairlead("rates", "learnt", journal, "--job", "a", "-o", "json"))

    known = {row["node"]: row["relative"] for row in nodes if row["jobs"] >= 2}
    assert 0 < len(known) < len(nodes)
    assert all(0.75 <= relative <= 1.05 for relative in known.values())
    assert all(row["relative"] is None for row in nodes if row["jobs"] < 2)
    layers = {row["node"]: row["layer"] for row in job["nodes"]}
    assert set(layers.values()) >= {"this job on this node", "this job on this type"}
    for row in job["nodes"]:
        if layers[row["node"]] == "this job on this node":
            assert 0.75 <= row["samples_per_s"] / row["profile_samples_per_s"] <= 1.05
    assert "expected on one node" in fairlead("rates", "learnt", journal, "--job", "a")[1]
    assert "speed of nodes" in fairlead("rates", "learnt", journal)[1]


def test_learnt_refuses_a_run_that_learnt_nothing_and_an_unknown_job(
    parts_file: str, tmp_path: Path, fairlead: Command
) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    words = ("--cluster", "v100:8x4", "--trace", str(tmp_path / "jobs.csv"), "--throughputs", parts_file)
    for sensing in ("table", "types"):
        journal = ("--journal", str(tmp_path / sensing))
        read_json(fairlead("simulate", *words, "--policy", "fifo", "--sensing", sensing, *journal, "-o", "json"))

    code, _, err = fairlead("rates", "learnt", str(tmp_path / "table"))
    assert code == 2
    assert "nothing was learnt in this run; wanted one with --sensing" in err
    code, _, err = fairlead("rates", "learnt", str(tmp_path / "types"), "--job", "z")
    assert code == 3
    assert 'job "z" is not in the journal' in err


def test_more_nodes_than_gpus_are_refused(fairlead: Command) -> None:
    code, _, err = fairlead("rates", "at", "resnet50", "2", "--nodes", "3")

    assert code == 2
    assert "2 GPUs over 3 nodes; each node needs at least one GPU" in err


def test_parts_that_contradict_a_row_are_doubted_wherever_they_count(
    parts_file: str, tmp_path: Path, fairlead: Command
) -> None:
    text = Path(parts_file).read_text()
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(
        re.sub(r"(forward_s|backward_s|update_s): ([\d.]+)", lambda m: f"{m[1]}: {float(m[2]) * 1000:g}", text)
    )
    (tmp_path / "trace.csv").write_text(TRACE)
    words = (
        "--cluster",
        "v100:8,p100:8",
        "--trace",
        str(tmp_path / "trace.csv"),
        "--throughputs",
        str(wrong),
        "-o",
        "json",
    )
    verbs = {
        "at": ("rates", "at", "resnet50", "1", "--throughputs", str(wrong), "-o", "json"),
        "show": ("rates", "show", "resnet50", "--throughputs", str(wrong), "-o", "json"),
        "simulate": ("simulate", "--policy", "fifo", *words),
        "compare": ("compare", "--policies", "fifo", "--state", str(tmp_path / "state"), *words),
    }

    answers = {verb: json.dumps(read_json(fairlead(*line))) for verb, line in verbs.items()}

    assert {verb: "a factor of" in text for verb, text in answers.items()} == dict.fromkeys(verbs, True)
    assert (
        read_json(fairlead("rates", "at", "resnet50", "1", "--throughputs", parts_file, "-o", "json"))["doubts"] == []
    )
