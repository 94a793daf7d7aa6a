"""Settings, partitions and holds of Slurm, read: as recorded, and made up where the records have no example."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engines.slurm.config import exit_codes, read_config, read_partitions
from fairlead.engines.slurm.holds import OWN_HOLD, HeldBy, holder
from fairlead.engines.slurm.leave import AT_ONCE, plan_departure
from fairlead.engines.slurm.queue import SlurmJob, read_queue

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "slurm-recorded"
CONFIG = """\
Configuration data as of 2026-11-17T22:58:01
AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu
AuthInfo                = socket=/run/munge/munge.socket.2,cred_expire=5
JobSubmitPlugins        = lua
KillWait                = 3 sec
PrivateData             = none
PowerPlugin             =
RequeueExit             = (null)
RequeueExitHold         = 1,80-85
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SlurmUser               = root(0)
SlurmctldHost[0]        = vm(127.0.0.1)

Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%

Slurmctld(primary) at vm is UP
"""


def test_settings_are_read_as_22_05_prints_them() -> None:
    config = read_config(CONFIG)

    assert config.get("SLURM_VERSION") == "22.05.8"
    assert config.part("AuthInfo", "cred_expire") == "5"
    assert config.number("KillWait") == 3
    assert (
        config.get("PrivateData") == config.get("RequeueExit") == config.get("PowerPlugin") == config.get("New") == ""
    )
    assert config.as_of == datetime(2026, 11, 17, 22, 58, 1, tzinfo=UTC)
    assert 85 in exit_codes(config.words("RequeueExitHold"))


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5", "26.05.5"])
def test_partitions_are_read_from_every_version(version: str) -> None:
    path = RECORDED / version / "partitions.txt"
    if not path.exists():
        pytest.skip(f"{path} is missing: the recorded output of Slurm is not part of the repository")

    partitions = read_partitions(path.read_text())

    assert [name for name, partition in partitions.items() if partition.default] == ["all"]
    assert {name: partition.tier for name, partition in partitions.items()} == {"all": 1, "fair": 1, "fairrun": 10}
    assert [partition.up for partition in partitions.values()] == [
        " State=UP " in line for line in path.read_text().splitlines()
    ]


def test_partitions_are_read_from_several_lines_too() -> None:
    text = "PartitionName=fair\n   AllowGroups=ALL Default=NO\n   PriorityTier=10 State=DOWN\n\nPartitionName=all\n"

    partitions = read_partitions(text)

    assert list(partitions) == ["fair", "all"]
    assert (partitions["fair"].tier, partitions["fair"].up) == (10, False)
    assert partitions["all"].tier == 1


@given(st.text())
def test_no_text_makes_the_reading_fail(text: str) -> None:
    read_config(text)
    read_partitions(text)
    exit_codes(text.split(","))


@given(st.sampled_from(["PartitionName=", "PriorityTier=", "Configuration data as of "]), st.text())
def test_no_value_makes_the_reading_fail(start: str, text: str) -> None:
    read_config(start + text)
    read_partitions(f"PartitionName=x {start}{text}")


def job(**fields: str) -> SlurmJob:
    columns = {"JobID": "7", "State": "PENDING", "Partition": "fair", "PriorityLong": "0", **fields}
    (only,) = read_queue("|".join([*columns.values(), ""]), list(columns), "|")
    return only


@pytest.mark.parametrize(
    ("fields", "who"),
    [
        ({"PriorityLong": "100", "Reason": "Resources"}, HeldBy.NOBODY),
        ({"Reason": "JobHeldUser"}, HeldBy.FAIRLEAD),
        ({"Reason": "JobHeldUser", "Comment": f"mine {OWN_HOLD}"}, HeldBy.OWNER),
        ({"Reason": "JobHeldAdmin"}, HeldBy.ADMINISTRATOR),
        ({"Reason": "JobHeldAdmin", "Comment": OWN_HOLD}, HeldBy.ADMINISTRATOR),
        ({"Reason": "job requeued in held state"}, HeldBy.FAIRLEAD),
        ({"Reason": "JobHeldUser", "State": "SPECIAL_EXIT"}, HeldBy.FAIRLEAD),
        ({"Reason": "JobHeldUser", "State": "RUNNING"}, HeldBy.FAIRLEAD),
        ({"Reason": "JobHoldMaxRequeue"}, HeldBy.ADMINISTRATOR),
        ({"Reason": "launch failed requeued held"}, HeldBy.ADMINISTRATOR),
    ],
)
def test_holds_are_told_apart(fields: dict[str, str], who: HeldBy) -> None:
    assert holder(job(**fields)) is who


def test_leaving_touches_only_the_partition_and_names_each_task_of_an_array() -> None:
    tasks = [job(JobArrayID=f"7_{task}", Reason="JobHeldUser") for task in range(AT_ONCE + 1)]
    others = [job(JobID="8", Partition="all"), job(JobID="9", State="COMPLETED")]

    plan = plan_departure([*tasks, *others, job(JobID="10", PriorityLong="5", ReqNodes="n1")], "fair")

    assert plan.commands[0] == ["scontrol", "update", "JobId=10", "NodeList="]
    assert [len(words[-1].split(",")) for words in plan.commands[1:]] == [AT_ONCE, 1]
    assert plan.commands[-1] == ["scontrol", "release", f"7_{AT_ONCE}"]
