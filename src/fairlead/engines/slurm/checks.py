"""What a Slurm needs for each way of using it, checked against facts: pure, one finding for each check."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import chain

from fairlead.engines.slurm.config import SlurmConfig, exit_codes
from fairlead.engines.slurm.facts import LUA, READING, RUNNING, SlurmFacts
from fairlead.engines.slurm.setup import job_submit_lua, uids_of
from fairlead.model.findings import Finding
from fairlead.model.handshake import CHECKPOINTED

TESTED = ("22.05", "24.11", "26.05")
SETUP = "see `fairlead slurm setup --print`"
SLOW_RESTART_S, CLOCK_S, REMEMBERED_S = 30, 5.0, 60
_DEFAULT_CRED_EXPIRE_S = 120
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "f2fs"})


class Mode(StrEnum):
    SHADOW = "shadow"  # watch, and change nothing
    LEASES = "leases"  # jobs of one team, as an ordinary user
    STEER = "steer"  # the users' own jobs


def check(facts: SlurmFacts, mode: Mode, partition: str) -> list[Finding]:
    """One finding for each check that the mode needs. Without an answer from the controller there is little to check."""
    first = [_commands(facts, mode), _controller(facts)]
    if facts.config is None:
        return first
    always: list[Callable[[SlurmConfig, SlurmFacts], Finding]] = [_version, _clock, _gpus, _memory, _accounting]
    of_mode: dict[Mode, list[Callable[[SlurmConfig, SlurmFacts], Finding]]] = {
        Mode.SHADOW: [_sight],
        Mode.LEASES: [_tracking, _preemption],
        Mode.STEER: [_sight, _rights, _tracking, _exit_code, _requeue, _credentials],
    }
    findings = [*first, *(one(facts.config, facts) for one in (*always, *of_mode[mode]))]
    if mode is Mode.LEASES or facts.state is not None:
        findings.append(_state(facts))
    if mode is Mode.STEER:
        findings += [_partition(facts, partition), _tier(facts, partition), *_plug_in(facts.config, facts, partition)]
        findings += [_preemption_by_tier(facts.config, partition)]
    return findings


def _commands(facts: SlurmFacts, mode: Mode) -> Finding:
    needed = READING if mode is Mode.SHADOW else (*READING, *RUNNING)
    absent = [name for name in needed if not facts.commands.get(name)]
    if absent:
        return Finding("commands", False, f"{', '.join(absent)} not found", "install Slurm's client commands here")
    return Finding("commands", True, f"{', '.join(needed)} of version {facts.version or 'unknown'}")


def _controller(facts: SlurmFacts) -> Finding:
    if facts.config is None:
        return Finding("controller", False, facts.trouble, "start slurmctld, or set SLURM_CONF to its slurm.conf")
    return Finding("controller", True, f"answers for cluster {facts.config.get('ClusterName') or 'without a name'}")


def _version(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    theirs, ours = config.get("SLURM_VERSION"), facts.version
    if theirs and ours and theirs != ours:
        return Finding(
            "version", None, f"{theirs}, but the commands here are {ours}", "use the same version everywhere"
        )
    tested = theirs.startswith(TESTED)
    return Finding("version", tested or None, theirs or "unknown", f"nothing; tests ran on {', '.join(TESTED)}")


def _clock(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    if facts.ahead_s is None:
        return Finding(
            "clock", None, "the controller prints no time", "make sure that its clock is that of this machine"
        )
    found = f"the controller is {abs(facts.ahead_s):.0f} s {'ahead' if facts.ahead_s > 0 else 'behind'}; times are read as UTC"
    return Finding("clock", abs(facts.ahead_s) <= CLOCK_S, found, "synchronise the clocks with NTP")


def _gpus(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    nodes = [node for node in facts.nodes.values() if node.gpus]
    if "gpu" not in config.words("GresTypes") or not nodes:
        found = f"GresTypes={config.get('GresTypes')}, {len(nodes)} nodes with GPUs"
        return Finding("GPUs", False, found, "add GresTypes=gpu and Gres=gpu:TYPE:COUNT of each node to slurm.conf")
    untyped = [node.name for node in nodes if "" in node.gpus]
    if untyped:
        return Finding("GPUs", None, f"no type on {_some(untyped)}", "name it with --alias gpu=a100, or in slurm.conf")
    mixed = [node.name for node in nodes if len(node.gpus) > 1]
    if mixed:
        return Finding("GPUs", None, f"several types on {_some(mixed)}", "leave these nodes out with --cluster FILE")
    types = sorted(set(chain.from_iterable(node.gpus for node in nodes)))
    return Finding("GPUs", True, f"{sum(sum(node.gpus.values()) for node in nodes)} of {', '.join(types)}")


def _memory(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    age_s = config.number("MinJobAge")
    remedy = f"set MinJobAge={REMEMBERED_S} or more, so that no end of a job is missed"
    return Finding(
        "MinJobAge", not age_s or age_s >= REMEMBERED_S or None, f"{age_s} s" if age_s else "no limit", remedy
    )


def _accounting(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    if facts.accounting is not None:
        return Finding("accounting", None, facts.accounting, "nothing; all accounts then have the same share")
    return Finding("accounting", True, "slurmdbd answers")


def _sight(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    hidden = [
        word for word in config.words("PrivateData") if word in ("jobs", "nodes", "accounts", "usage", "users", "all")
    ]
    if not hidden or _privileged(config, facts):
        return Finding("jobs of others", True, "can be seen")
    needed = any(word in ("jobs", "nodes", "all") for word in hidden)
    found = f"PrivateData={','.join(hidden)} hides them from {facts.user}"
    return Finding("jobs of others", False if needed else None, found, f"make {facts.user} an operator ({SETUP})")


def _rights(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    if _privileged(config, facts):
        return Finding("rights", True, f"{facts.user} may release the jobs of others")
    found = f"{facts.user} is neither root, SlurmUser nor operator"
    return Finding("rights", False, found, f"sacctmgr -i modify user {facts.user} set AdminLevel=Operator")


def _privileged(config: SlurmConfig, facts: SlurmFacts) -> bool:
    slurm_user = config.get("SlurmUser").partition("(")[0]
    return facts.uid == 0 or facts.user == slurm_user or facts.admin_level in ("operator", "administrator")


def _tracking(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    kind = config.get("ProctrackType").rpartition("/")[2]
    remedy = "set ProctrackType=proctrack/cgroup: processes that leave their group survive otherwise"
    return Finding("ProctrackType", kind in ("cgroup", "linuxproc") or None, kind or "unknown", remedy)


def _preemption(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    kind = config.get("PreemptType").rpartition("/")[2]
    if kind in ("", "none"):
        return Finding("pre-emption", True, "Slurm stops no lease by itself")
    return Finding("pre-emption", None, f"PreemptType={kind}", "use a partition or QOS that is not pre-empted")


def _state(facts: SlurmFacts) -> Finding:
    if facts.state is None or not facts.state_type:
        return Finding("state directory", None, "not checked", "name it with --state; all nodes must share it")
    found = f"{facts.state} is on {facts.state_type}"
    remedy = "put it on a file system that all nodes share"
    return Finding("state directory", None if facts.state_type in _LOCAL else True, found, remedy)


def _exit_code(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    held = config.get("RequeueExitHold")
    also = CHECKPOINTED in exit_codes(config.words("RequeueExit"))
    ok = CHECKPOINTED in exit_codes(config.words("RequeueExitHold")) and not also
    found = f"{held or 'empty'}{f', and RequeueExit has {CHECKPOINTED} too' if also else ''}"
    return Finding("RequeueExitHold", ok, found, f"add {CHECKPOINTED} to RequeueExitHold alone, in slurm.conf")


def _requeue(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    on = config.get("JobRequeue") != "0"
    remedy = f"nothing for jobs that {LUA} sees; older ones cannot be stopped and continued"
    return Finding("JobRequeue", on or None, "on" if on else "off", remedy)


def _credentials(config: SlurmConfig, facts: SlurmFacts) -> Finding:
    text = config.part("AuthInfo", "cred_expire")
    seconds = int(text) if text.isdecimal() else _DEFAULT_CRED_EXPIRE_S
    found = f"a job that is requeued by itself waits {seconds} s"
    return Finding(
        "cred_expire", seconds <= SLOW_RESTART_S or None, found, "add cred_expire=5 to AuthInfo in slurm.conf"
    )


def _partition(facts: SlurmFacts, name: str) -> Finding:
    partition = facts.partitions.get(name)
    if partition is None:
        known = ", ".join(facts.partitions) or "none"
        return Finding("partition", False, f"{name} does not exist (there are: {known})", SETUP)
    if not partition.up:
        return Finding("partition", False, f"{name} is down", f"scontrol update PartitionName={name} State=UP")
    return Finding("partition", True, f"{name} has {partition.fields.get('nodes') or 'no nodes'}")


def _tier(facts: SlurmFacts, name: str) -> Finding:
    mine = facts.partitions[name].tier if name in facts.partitions else 0
    here = [node for node in facts.nodes.values() if name in node.partitions]
    beside = {other for node in here for other in node.partitions} - {name}
    rivals = sorted(other for other in beside if other in facts.partitions and facts.partitions[other].tier >= mine)
    if not rivals:
        return Finding("PriorityTier", True, f"{mine}, above all partitions on the same nodes")
    found = f"{mine}, not above that of {', '.join(rivals)}"
    above = 1 + max(facts.partitions[other].tier for other in rivals)
    return Finding(
        "PriorityTier", None, found, f"set PriorityTier={above}: other jobs may take GPUs meant for a successor"
    )


def _plug_in(config: SlurmConfig, facts: SlurmFacts, partition: str) -> list[Finding]:
    plug_ins = config.words("JobSubmitPlugins")
    loaded = Finding("JobSubmitPlugins", "lua" in plug_ins, ",".join(plug_ins) or "empty", f"add lua ({SETUP})")
    return [loaded, _script(facts, partition)] if loaded.ok else [loaded]


def _script(facts: SlurmFacts, partition: str) -> Finding:
    path = facts.slurm_conf.parent / LUA
    if facts.lua is None:
        return Finding(
            LUA, None, f"{path} cannot be read here", "compare it on the controller with the one that setup prints"
        )
    uids = uids_of(facts.lua)
    if facts.lua.strip() != job_submit_lua(partition, uids).strip():
        return Finding(LUA, None, f"{path} is not the one that setup prints", "compare them; yours may contain it")
    if facts.uid not in (0, *uids):
        return Finding(LUA, False, f"it does not let {facts.user} (uid {facts.uid}) release jobs", SETUP)
    return Finding(LUA, True, f"{path} is the one that setup prints")


def _preemption_by_tier(config: SlurmConfig, name: str) -> Finding:
    by_tier = config.get("PreemptType").endswith("partition_prio") and config.get("PreemptMode") not in ("", "OFF")
    if not by_tier:
        return Finding("pre-emption", True, "Slurm stops no job because of tiers")
    found = f"PreemptMode={config.get('PreemptMode')}: jobs of {name} stop those of lower tiers"
    return Finding("pre-emption", None, found, "set PreemptMode=OFF for the other partitions on these nodes")


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
