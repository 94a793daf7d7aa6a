"""What Slurm prints, read: as recorded from three versions, and made up where those have no example."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engines.slurm.machines import read_nodes
from fairlead.engines.slurm.queue import JobStage, SlurmJob, read_queue
from fairlead.engines.slurm.tables import SEPARATOR, format_of, read_table
from fairlead.model.slurm_text import duration_s, gpus_by_type

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "slurm-recorded"
VERSIONS = ("22.05.8", "24.11.5", "26.05.5")
# The columns of the records, which are fewer than those that we ask for.
QUEUE = (
    *("JobArrayID", "JobID", "State", "Reason", "UserName", "Account", "Partition", "QOS", "NumNodes", "NodeList"),
    *("ReqNodes", "tres-per-node", "tres-per-job", "exit_code", "StartTime", "EndTime", "SubmitTime", "TimeLimit"),
    "Comment",
)
NODES = ("NodeList", "StateComplete", "Gres", "GresUsed", "Partition", "Reason")


@pytest.fixture(params=VERSIONS)
def recorded(request: pytest.FixtureRequest) -> Path:
    folder = RECORDED / str(request.param)
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: the recorded output of Slurm is not part of the repository")
    return folder


def jobs(folder: Path) -> dict[str, SlurmJob]:
    rows = read_queue((folder / "squeue.txt").read_text(), QUEUE, "|")
    return {row.state + row.comment: row for row in rows if "_" not in row.id}


def test_the_same_job_reads_the_same_from_every_version(recorded: Path) -> None:
    running, failed = jobs(recorded)["RUNNINGfairlead:j1/3"], jobs(recorded)["FAILEDa|b"]

    assert (running.stage, running.nodes, running.node_list) == (JobStage.ACTIVE, 2, "k80-1,v100-1")
    assert running.gpus_per_node == {"": 2}
    assert (failed.stage, failed.exit_code, failed.comment) == (JobStage.DONE, 7, "a|b")
    assert failed.gpus_per_node == {}


def test_tasks_of_an_array_are_jobs_of_their_own_and_wait_on_hold(recorded: Path) -> None:
    rows = [row for row in read_queue((recorded / "squeue.txt").read_text(), QUEUE, "|") if row.partition == "fairrun"]
    tasks = [row for row in rows if "_" in row.id]

    assert [row.id.partition("_")[2] for row in tasks] == ["1", "2", "3"]
    assert all(row.held and row.stage is JobStage.PENDING and row.gpus_per_node == {"p100": 1} for row in tasks)


def test_nodes_read_the_same_from_every_version(recorded: Path) -> None:
    nodes = read_nodes((recorded / "sinfo.txt").read_text(), NODES, "|")

    assert list(nodes) == ["k80-1", "p100-1", "v100-1", "v100-2"]
    assert [node.gpus for node in nodes.values()] == [{"k80": 2}, {"p100": 4}, {"v100": 4}, {"v100": 4}]
    assert [node.used for node in nodes.values()] == [2, 0, 2, 0]
    assert [node.open for node in nodes.values()] == [True, True, True, False]
    assert not any(node.gone for node in nodes.values())
    assert nodes["v100-2"].reason == "test | drain"
    assert nodes["k80-1"].partitions == ("all", "fair", "fairrun")


@pytest.mark.parametrize(
    ("state", "gone", "is_open"),
    [
        ("idle", False, True),
        ("mixed+planned", False, True),
        ("allocated", False, True),
        ("idle*", False, False),
        ("mixed*", False, False),
        ("unknown*", False, False),
        ("down*+drain", True, False),
        ("idle+cloud+powered_down", True, False),
        ("idle~", True, False),
        ("mixed+drain", False, False),
        ("idle+reserved", False, False),
        ("IDLE+MAINT", False, False),
        ("idle+some_word_of_tomorrow", False, True),
    ],
)
def test_states_of_nodes(state: str, gone: bool, is_open: bool) -> None:
    text = SEPARATOR.join(["n", "a", state, "gpu:4", "gpu:0", "all", "none"]) + SEPARATOR
    node = read_nodes(text)["n"]
    assert (node.gone, node.open) == (gone, is_open)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:v100:4(S:0-1)", {"v100": 4}),
        ("gpu:v100:2(IDX:0,1),gpu:k80:1(IDX:2)", {"v100": 2, "k80": 1}),
        ("gres/gpu:v100=2,gres/gpu=2", {"v100": 2}),
        ("billing=1,cpu=1,gres/gpu:k80=2,gres/gpu:v100=2,gres/gpu=4,node=2", {"k80": 2, "v100": 2}),
        ("gres:gpu:2", {"": 2}),
        ("gres/gpu", {"": 1}),
        ("gpu", {"": 1}),
        ("gpu:tesla_v100-sxm2-32gb:8(S:0,1)", {"tesla_v100-sxm2-32gb": 8}),
        ("gpu:k80:0(IDX:N/A)", {"k80": 0}),
        ("tmp:800G,license:3", {}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_amounts_of_gpus(text: str, gpus: dict[str, int]) -> None:
    assert gpus_by_type(text) == gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("365-00:00:00", 365 * 86400.0),
        ("1:00:00", 3600.0),
        ("2:05", 125.0),
        ("7", 7.0),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "code"), [("7:0", 7), ("0:15", 143), ("1792", 7), ("15", 143), ("0:0", 0), ("x", None)]
)
def test_exit_codes(text: str, code: int | None) -> None:
    row = dict.fromkeys(QUEUE, "") | {"exit_code": text}
    assert read_queue("|".join(row.values()) + "|", QUEUE, "|")[0].exit_code == code


def test_a_state_of_tomorrow_is_unknown_and_nothing_else() -> None:
    row = dict.fromkeys(QUEUE, "") | {"State": "TELEPORTING"}
    assert read_queue("|".join(row.values()) + "|", QUEUE, "|")[0].stage is JobStage.UNKNOWN


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=200))
def test_no_output_ends_the_reader(text: str) -> None:
    read_queue(text)
    read_nodes(text)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n" + SEPARATOR)), min_size=3, max_size=3))
def test_a_table_comes_back_as_it_was_printed(fields: list[str]) -> None:
    columns = ("a", "b", "c")
    assert format_of(columns) == f"a:{SEPARATOR},b:{SEPARATOR},c:{SEPARATOR}"
    assert list(read_table(SEPARATOR.join(fields) + SEPARATOR, columns)) == [dict(zip(columns, fields, strict=True))]
