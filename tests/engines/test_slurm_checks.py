"""What `fairlead slurm doctor` finds and `fairlead slurm setup` prints, for facts of clusters that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engines.slurm.checks import Mode, check
from fairlead.engines.slurm.config import read_config, read_partitions
from fairlead.engines.slurm.facts import SlurmFacts, file_system_type
from fairlead.engines.slurm.machines import read_nodes
from fairlead.engines.slurm.preparation import prepare
from fairlead.engines.slurm.setup import job_submit_lua, uids_of
from fairlead.model.findings import Finding

CONFIG = """\
AuthInfo                = cred_expire=5
GresTypes               = gpu
JobRequeue              = 1
JobSubmitPlugins        = lua
MinJobAge               = 300 sec
PreemptMode             = OFF
PreemptType             = preempt/none
PrivateData             = none
ProctrackType           = proctrack/cgroup
RequeueExitHold         = 85
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SlurmUser               = slurm(64030)
"""
PARTITIONS = "PartitionName=fair Nodes=n1 PriorityTier=10 State=UP\nPartitionName=all PriorityTier=1 State=UP\n"
NODES = "n1|idle|gpu:v100:4|fair|\nn1|idle|gpu:v100:4|all|\n"
COMMANDS = ("squeue", "sinfo", "scontrol", "sbatch", "scancel")
READY = SlurmFacts(
    commands=dict.fromkeys(COMMANDS, True),
    version="22.05.8",
    user="fairlead",
    uid=900,
    config=read_config(CONFIG),
    ahead_s=0.4,
    partitions=read_partitions(PARTITIONS),
    nodes=read_nodes(NODES, ("NodeList", "StateComplete", "Gres", "Partition"), "|"),
    admin_level="operator",
    lua=job_submit_lua("fair", [900]),
    state=Path("/shared/state"),
    state_type="nfs4",
)


def changed(name: str, text: str) -> SlurmFacts:
    lines = [line for line in CONFIG.splitlines() if not line.startswith(f"{name} ")]
    return replace(READY, config=read_config("\n".join([*lines, f"{name} = {text}"])))


def finding(facts: SlurmFacts, name: str, mode: Mode = Mode.STEER) -> Finding:
    return next(finding for finding in check(facts, mode, "fair") if finding.check == name)


@pytest.mark.parametrize("mode", Mode)
def test_nothing_is_missing_on_a_cluster_that_is_prepared(mode: Mode) -> None:
    assert [finding for finding in check(READY, mode, "fair") if not finding.ok] == []


@pytest.mark.parametrize(
    ("facts", "name", "ok"),
    [
        (replace(READY, commands={**READY.commands, "scancel": False}), "commands", False),
        (replace(READY, config=None, trouble="scontrol: Unable to contact slurm controller"), "controller", False),
        (replace(READY, version="21.08.1"), "version", None),
        (changed("SLURM_VERSION", "99.99.0"), "version", None),
        (replace(READY, ahead_s=-90.0), "clock", False),
        (replace(READY, ahead_s=None), "clock", None),
        (changed("GresTypes", "(null)"), "GPUs", False),
        (replace(READY, nodes={}), "GPUs", False),
        (changed("MinJobAge", "2 sec"), "MinJobAge", None),
        (changed("MinJobAge", "0 sec"), "MinJobAge", True),
        (replace(READY, accounting="sacctmgr: Connection refused"), "accounting", None),
        (replace(changed("PrivateData", "jobs,usage"), admin_level="none"), "jobs of others", False),
        (changed("PrivateData", "jobs"), "jobs of others", True),
        (replace(READY, admin_level="none"), "rights", False),
        (replace(READY, admin_level="", user="slurm"), "rights", True),
        (changed("ProctrackType", "proctrack/pgid"), "ProctrackType", None),
        (changed("RequeueExitHold", "(null)"), "RequeueExitHold", False),
        (changed("RequeueExitHold", "1,80-90"), "RequeueExitHold", True),
        (changed("RequeueExit", "85"), "RequeueExitHold", False),
        (changed("JobRequeue", "0"), "JobRequeue", None),
        (changed("AuthInfo", "(null)"), "cred_expire", None),
        (replace(READY, partitions={}), "partition", False),
        (replace(READY, partitions=read_partitions("PartitionName=fair State=DRAIN")), "partition", False),
        (replace(READY, partitions=read_partitions(PARTITIONS.replace("10", "1"))), "PriorityTier", None),
        (changed("JobSubmitPlugins", "throttle"), "JobSubmitPlugins", False),
        (replace(READY, lua=None), "job_submit.lua", None),
        (replace(READY, lua="-- of the site"), "job_submit.lua", None),
        (replace(READY, lua=job_submit_lua("fair", [901])), "job_submit.lua", False),
        (changed("PreemptType", "preempt/partition_prio"), "pre-emption", True),
    ],
)
def test_what_is_missing_is_found_and_has_a_remedy(facts: SlurmFacts, name: str, ok: bool | None) -> None:
    result = finding(facts, name)

    assert result.ok is ok
    assert result.found
    assert ok or result.remedy


def test_preemption_by_tiers_would_stop_foreign_jobs() -> None:
    lines = CONFIG.replace("preempt/none", "preempt/partition_prio").replace("= OFF", "= REQUEUE")
    assert finding(replace(READY, config=read_config(lines)), "pre-emption").ok is None


def test_leases_need_a_shared_state_directory() -> None:
    assert finding(replace(READY, state_type="ext4"), "state directory", Mode.LEASES).ok is None
    assert finding(replace(READY, state=None), "state directory", Mode.LEASES).ok is None


@given(st.dictionaries(st.sampled_from([line.split()[0] for line in CONFIG.splitlines()]), st.text()))
def test_no_setting_makes_the_checks_fail(settings: dict[str, str]) -> None:
    text = "\n".join(f"{name} = {value}" for name, value in settings.items())
    for mode in Mode:
        check(replace(READY, config=read_config(text)), mode, "fair")


def test_setup_adds_to_what_the_site_has() -> None:
    config = read_config("RequeueExitHold = 7\nJobSubmitPlugins = throttle\nAuthInfo = socket=/run/m,cred_expire=60\n")
    tiers = read_partitions("PartitionName=urgent PriorityTier=50")

    texts = prepare(replace(READY, config=config, partitions=tiers), "fair", "fairlead", 900)

    lines = texts.conf.splitlines()
    assert "RequeueExitHold=7,85" in lines
    assert "JobSubmitPlugins=throttle,lua" in lines
    assert "AuthInfo=socket=/run/m,cred_expire=5" in lines
    assert "PartitionName=fair Nodes=n1 PriorityTier=51 MaxTime=INFINITE State=UP" in lines
    assert "sacctmgr -i modify user fairlead set AdminLevel=Operator" in texts.accounts
    assert "#      JobSubmitPlugins=throttle" in texts.undo


def test_setup_without_a_slurm_says_what_to_look_for() -> None:
    bare = SlurmFacts(commands={}, version="", user="root", uid=0, trouble="scontrol is not installed", accounting="no")

    texts = prepare(bare, "gpu", "root", 0, "node[1-4]")

    assert texts.conf.startswith("# No Slurm answers here")
    assert "PartitionName=gpu Nodes=node[1-4] PriorityTier=10" in texts.conf
    assert "nothing is needed" in texts.accounts


@given(st.lists(st.integers(1, 2**31), unique=True))
def test_the_users_of_a_plug_in_are_read_back(uids: list[int]) -> None:
    assert uids_of(job_submit_lua("fair", uids)) == uids


def test_the_file_system_of_a_path_is_that_of_its_longest_mount_point() -> None:
    mounts = "/dev/sda / ext4 rw 0 0\nhome:/ /home nfs4 rw 0 0\nx /home/a\\040b lustre rw 0 0\nbroken\n"

    assert file_system_type(Path("/home/ann/state"), mounts) == "nfs4"
    assert file_system_type(Path("/home/a b/state"), mounts) == "lustre"
    assert file_system_type(Path("/homes/ann"), mounts) == "ext4"


@pytest.mark.parametrize(("user", "uid"), [("root", 0), ("slurm", 64030)])
def test_undoing_takes_no_rights_from_users_that_slurm_itself_needs(user: str, uid: int) -> None:
    texts = prepare(READY, "fair", user, uid)

    assert "sacctmgr" not in texts.undo
    assert "nothing is needed" in texts.accounts
    assert "AdminLevel=None" in prepare(READY, "fair", "fairlead", 900).undo
    assert "AdminLevel=None" not in prepare(replace(READY, accounting="no slurmdbd"), "fair", "fairlead", 900).undo
