"""The lines, files and commands that prepare a Slurm for steering, fitted to what it has already, and their reversal.

Text alone: an administrator reads it and carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.engines.slurm.config import SlurmConfig, exit_codes
from fairlead.engines.slurm.facts import LUA, SlurmFacts
from fairlead.engines.slurm.setup import job_submit_lua
from fairlead.model.handshake import CHECKPOINTED

_TIER = 10
_CRED_EXPIRE = "cred_expire=5"


@dataclass(frozen=True, slots=True)
class Preparation:
    """Every part is complete text, with comments in its own language."""

    conf: str  # for slurm.conf
    lua: str
    accounts: str  # commands, to be run once
    undo: str


def prepare(facts: SlurmFacts, partition: str, user: str, uid: int, nodes: str = "") -> Preparation:
    """For the given user of Fairlead. `nodes` is in Slurm's notation; without it, all nodes with GPUs are meant."""
    config = facts.config or SlurmConfig({}, None)
    return Preparation(
        conf=_lines(_conf(facts, config, partition, nodes)),
        lua=job_submit_lua(partition, [uid]),
        accounts=_lines(_accounts(facts, config, user, uid)),
        undo=_lines(_undo(facts, config, partition, user, uid)),
    )


def _conf(facts: SlurmFacts, config: SlurmConfig, partition: str, nodes: str) -> list[str]:
    known = (
        ""
        if facts.config is not None
        else "# No Slurm answers here: add to the lists below what slurm.conf has already."
    )
    return [
        *filter(None, [known]),
        "# A job that wrote a checkpoint and ends with this exit code is put on hold again, under the same number.",
        f"RequeueExitHold={_with_code(config)}",
        f"# {facts.slurm_conf.parent / LUA} holds the jobs of the partition.",
        f"JobSubmitPlugins={_with_word(config.words('JobSubmitPlugins'), 'lua')}",
        "# Jobs of the partition are considered before those of others on the same nodes.",
        _partition(facts, partition, nodes),
        f"# Recommended: a job that its own script requeues waits for {_CRED_EXPIRE.partition('=')[2]} s only, not for 120 s.",
        "# slurmctld, slurmd and slurmdbd must be restarted for it; for the other lines `scontrol reconfigure` is enough.",
        f"AuthInfo={_with_word([word for word in config.words('AuthInfo') if 'cred_expire' not in word], _CRED_EXPIRE)}",
    ]


def _partition(facts: SlurmFacts, name: str, nodes: str) -> str:
    others = [partition.tier for partition in facts.partitions.values() if partition.name != name]
    tier = max([_TIER, *(tier + 1 for tier in others)])
    existing = facts.partitions.get(name)
    if existing is not None and not nodes:
        return f"PartitionName={name} Nodes={existing.fields.get('nodes', 'ALL')} PriorityTier={tier}  # and its other options"
    chosen = nodes or ",".join(node.name for node in facts.nodes.values() if node.gpus) or "ALL"
    return f"PartitionName={name} Nodes={chosen} PriorityTier={tier} MaxTime=INFINITE State=UP"


def _has_rights(config: SlurmConfig, user: str, uid: int) -> bool:
    """Root and SlurmUser may do everything, whatever the accounting says about them."""
    return uid == 0 or config.get("SlurmUser").partition("(")[0] == user


def _accounts(facts: SlurmFacts, config: SlurmConfig, user: str, uid: int) -> list[str]:
    if _has_rights(config, user, uid):
        return [f"# The service runs as {user}, which may release all jobs: nothing is needed."]
    if facts.accounting is not None:
        return ["# Without slurmdbd nobody can be made an operator: run the service as root or as SlurmUser."]
    return [
        f"# {user} may release the jobs of others. If it has no account in the accounting yet, add it to one first:",
        f"#   sacctmgr -i add user {user} account=root",
        f"sacctmgr -i modify user {user} set AdminLevel=Operator",
    ]


def _undo(facts: SlurmFacts, config: SlurmConfig, partition: str, user: str, uid: int) -> list[str]:
    plug_ins = ",".join(word for word in config.words("JobSubmitPlugins") if word != "lua")
    codes = ",".join(word for word in config.words("RequeueExitHold") if word != str(CHECKPOINTED))
    restore = [f"{name}={text}" for name, text in (("JobSubmitPlugins", plug_ins), ("RequeueExitHold", codes)) if text]
    return [
        "# 1. Stop `fairlead serve`. Running jobs keep running.",
        "# 2. In slurm.conf, remove the lines JobSubmitPlugins and RequeueExitHold"
        + (", and write instead:" if restore else ","),
        *(f"#      {line}" for line in restore),
        "#    then let Slurm read it. From now on new jobs are not held:",
        "scontrol reconfigure",
        f"rm {facts.slurm_conf.parent / LUA}",
        "# 3. Hand over the jobs that are on hold:",
        f"fairlead slurm leave --partition {partition}",
        "# 4. If the partition is not wanted any more, remove its line when it is empty.",
        *_rights_taken_back(facts, config, user, uid),
    ]


def _rights_taken_back(facts: SlurmFacts, config: SlurmConfig, user: str, uid: int) -> list[str]:
    """Nothing for root and SlurmUser: they got no rights for Fairlead, and Slurm needs them as they are."""
    if _has_rights(config, user, uid) or facts.accounting is not None:
        return []
    return [
        f"# 5. If {user} became an operator for Fairlead only, take that right back:",
        f"sacctmgr -i modify user {user} set AdminLevel=None",
    ]


def _with_code(config: SlurmConfig) -> str:
    words = config.words("RequeueExitHold")
    return ",".join(words) if CHECKPOINTED in exit_codes(words) else _with_word(words, str(CHECKPOINTED))


def _with_word(words: list[str], word: str) -> str:
    return ",".join([*words, *([] if word in words else [word])])


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
