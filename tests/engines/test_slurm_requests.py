"""Jobs and accounts of Slurm in our terms: what they ask for, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.engines.slurm.accounts import read_quotas, read_weights
from fairlead.engines.slurm.job_requests import (
    ModelFrom,
    NotARequest,
    Site,
    SlurmRequest,
    constrained_types,
    read_comment,
    read_request,
    site_of,
)
from fairlead.engines.slurm.machines import read_nodes
from fairlead.engines.slurm.queue import COLUMNS, SlurmJob, read_queue
from fairlead.engines.slurm.tables import SEPARATOR
from fairlead.model.quotas import Quota

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "slurm-recorded"
SITE = Site(("v100", "k80", "a100"), models=[("*resnet*", "resnet50")])


def job(**fields: str) -> SlurmJob:
    """A job with these columns, as Slurm prints the others if they are not set."""
    known = {"JobID": "7", "State": "PENDING", "UserName": "alice", "NumNodes": "1", "NumTasks": "1"}
    columns = {name.replace("tres_per_", "tres-per-"): text for name, text in fields.items()}
    row = {**dict.fromkeys(COLUMNS, "N/A"), **known, **columns}
    return read_queue(SEPARATOR.join(row[name] for name in COLUMNS) + SEPARATOR)[0]


def request(**fields: str) -> SlurmRequest:
    return request_at(SITE, **fields)


def request_at(site: Site, /, **fields: str) -> SlurmRequest:
    reading = read_request(job(**fields), site, 5.0)
    assert isinstance(reading, SlurmRequest), reading
    return reading


def refused(**fields: str) -> str:
    reading = read_request(job(**fields), SITE, 0.0)
    assert isinstance(reading, NotARequest), reading
    return reading.reason


@pytest.mark.parametrize(
    ("fields", "gpus", "nodes"),
    [
        ({"tres_per_node": "gres:gpu:2", "NumNodes": "2"}, 4, 2),
        ({"tres_per_node": "gres/gpu:2"}, 2, 1),
        ({"tres_per_job": "gres:gpu:4"}, 4, None),
        ({"tres_per_job": "gres:gpu:4", "NumNodes": "2"}, 4, 2),
        ({"tres_per_job": "gres:gpu:5", "NumNodes": "2"}, 5, None),
        ({"tres_per_task": "gres:gpu:1", "NumTasks": "3"}, 3, 1),
    ],
)
def test_the_number_of_gpus_is_that_of_the_whole_job(fields: dict[str, str], gpus: int, nodes: int | None) -> None:
    reading = request(**fields)
    assert (reading.spec.gpus, reading.spec.nodes) == (gpus, nodes)


@pytest.mark.parametrize(
    ("fields", "types"),
    [
        ({}, ()),
        ({"tres_per_node": "gres:gpu:tesla_v100:2"}, ("v100",)),
        ({"Feature": "a100|k80"}, ("k80", "a100")),
        ({"Feature": "[a100|k80]&nvlink"}, ("k80", "a100")),
        ({"Feature": "nvlink|k80"}, ()),
        ({"Feature": "(a100&nvlink)|k80*2"}, ("k80", "a100")),
        ({"Comment": "fairlead: types=A100,k80"}, ("k80", "a100")),
        ({"Comment": "fairlead: types=a100,k80", "Feature": "k80"}, ("k80",)),
        ({"tres_per_node": "gres:gpu:v100:2", "Comment": "fairlead: types=v100,k80"}, ("v100",)),
        ({"Comment": "fairlead:0123456789abcdef:j1/3"}, ()),
    ],
)
def test_only_types_that_every_part_of_the_request_allows_count(fields: dict[str, str], types: tuple[str, ...]) -> None:
    assert request(**{"tres_per_node": "gres:gpu:1", **fields}).spec.types == types


def test_a_partition_without_a_type_rules_it_out() -> None:
    text = "\n".join(
        SEPARATOR.join([name, name, "idle", gpus, "gpu:0", partition, "none"]) + SEPARATOR
        for name, gpus, partition in [("a", "gpu:a100:4", "new"), ("b", "gpu:k80:2", "old"), ("a", "gpu:a100:4", "all")]
    )
    site = site_of(read_nodes(text).values())

    assert site.types == ("a100", "k80")
    assert request_at(site, tres_per_node="gpu:1", Partition="new").spec.types == ("a100",)
    assert request_at(site, tres_per_node="gpu:1", Partition="old,new").spec.types == ()
    assert request_at(site, tres_per_node="gpu:1", Partition="hidden").spec.types == ()


def test_the_tenant_is_the_account_else_the_user() -> None:
    assert request(tres_per_node="gpu:1", Account="lab").spec.tenant == "lab"
    assert request(tres_per_node="gpu:1").spec.tenant == "alice"


def test_the_model_comes_from_the_comment_else_the_name_else_is_a_stated_default() -> None:
    def model(**fields: str) -> tuple[str, str]:
        reading = request(tres_per_node="gpu:1", **fields)
        return reading.spec.model, reading.model_from

    assert model(Name="my-resnet-3", Comment="fairlead: model=bert-base") == ("bert-base", ModelFrom.COMMENT)
    assert model(Name="my-resnet-3") == ("resnet50", ModelFrom.NAME)
    assert model(Name="train.sh") == ("unknown", ModelFrom.DEFAULT)


def test_steps_are_those_of_the_comment_and_the_time_limit_bounds_the_length() -> None:
    reading = request(tres_per_node="gpu:1", Comment="note; fairlead: steps=9e3", TimeLimit="1-00:00:00")
    assert (reading.spec.steps, reading.limit_s, reading.spec.arrival_s) == (9000.0, 86400.0, 5.0)
    assert reading.spec.run_limit_s == 86400.0
    assert request(tres_per_node="gpu:1", TimeLimit="UNLIMITED").limit_s is None


def test_what_a_comment_says_wrongly_is_noted_and_never_an_error() -> None:
    wishes = read_comment("fairlead: steps=many speed=9 types=")
    assert (wishes.steps, wishes.types, len(wishes.notes)) == (None, (), 2)
    assert "feature" not in request(tres_per_node="gpu:1").notes
    assert "nvlink" in request(tres_per_node="gpu:1", Feature="nvlink").notes[0]


def test_jobs_that_cannot_be_scheduled_say_why() -> None:
    assert "no GPUs" in refused()
    assert "heterogeneous" in refused(JobArrayID="7+1", tres_per_node="gpu:1")
    assert "several types" in refused(tres_per_node="gpu:v100:1,gpu:k80:1")
    assert "socket" in refused(tres_per_socket="gres:gpu:1")
    assert "satisfies its request h100" in refused(tres_per_node="gpu:h100:1")
    assert "its constraint k80" in refused(tres_per_node="gpu:v100:1", Feature="k80")


def test_constraints_that_are_not_understood_restrict_nothing() -> None:
    for text in ("", "(null)", "&|&", "[[", "a100|"):
        assert constrained_types(text, SITE) == ()


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5", "26.05.5"])
def test_recorded_jobs_read_the_same_from_every_version(version: str) -> None:
    columns = (
        *("JobArrayID", "JobID", "State", "Reason", "UserName", "Account", "Partition", "QOS", "NumNodes", "NodeList"),
        *("ReqNodes", "tres-per-node", "tres-per-job", "exit_code", "StartTime", "EndTime", "SubmitTime", "TimeLimit"),
        "Comment",
    )
    nodes = read_nodes(recorded(version, "sinfo.txt"), ("NodeList", "StateComplete", "Gres", "GresUsed", "Partition", "Reason"), "|")  # fmt: skip
    site = site_of(nodes.values())
    readings = [read_request(row, site, 0.0) for row in read_queue(recorded(version, "squeue.txt"), columns, "|")]
    requests = [reading for reading in readings if isinstance(reading, SlurmRequest)]

    assert site.types == ("k80", "p100", "v100")
    assert {reading.reason for reading in readings if isinstance(reading, NotARequest)} == {"it requests no GPUs"}
    gang = next(reading for reading in requests if reading.spec.nodes == 2)
    assert (gang.spec.tenant, gang.spec.gpus, gang.spec.types, gang.spec.model) == ("root", 4, (), "unknown")
    assert any(reading.spec.id.endswith("_3") and reading.spec.types == ("p100",) for reading in requests)


def recorded(version: str, file: str) -> str:
    path = RECORDED / version / file
    if not path.exists():
        pytest.skip(f"{path} is missing: the recorded output of Slurm is not part of the repository")
    return path.read_text()


def test_weights_are_the_shares_of_recorded_accounts() -> None:
    assert read_weights(recorded("22.05.8", "sshare.txt")) == {"root": 1.0, "laba": 30.0, "labb": 10.0}


def test_limits_of_recorded_accounts_are_caps_that_own_nothing() -> None:
    quotas, notes = read_quotas(recorded("22.05.8", "assoc.txt"), ("v100", "k80"))
    assert (quotas, notes) == ({"labb": (Quota("v100", 0, borrowing_limit=2),)}, ())


def test_nested_accounts_divide_what_their_parent_has() -> None:
    text = """Account|User|RawShares|RawUsage
root||||
 physics||30|7
  physics|eve|10|0
  astro||10|0
   astro|ann|1|0
  solid||parent|0
   solid|sam|parent|0
 idle||0|0
 chem||10|0
"""
    weights = read_weights(text)
    assert weights == pytest.approx({"physics": 30 * 10 / 21, "astro": 30 * 10 / 21, "solid": 30 / 21, "chem": 10.0})


def test_without_an_accounting_database_there_are_no_weights_and_no_limits() -> None:
    assert read_weights("Account|User|RawShares|RawUsage\n") == {}
    assert read_quotas("", ("v100",)) == ({}, ())


def test_a_limit_over_all_types_and_one_of_a_user_are_stated() -> None:
    text = (
        "lab||1|normal|cpu=9,gres/gpu=4,gres/gpu:v100=2\nlab|ann|1|normal|gres/gpu=1\nlab2||1|normal|gres/gpu:tpu=1\n"
    )
    quotas, notes = read_quotas(text, ("v100", "k80"))
    assert quotas == {"lab": (Quota("v100", 0, borrowing_limit=2), Quota("k80", 0, borrowing_limit=4))}
    assert len(notes) == 2
