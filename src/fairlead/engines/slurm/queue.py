"""The jobs of `squeue`, of whatever version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from fairlead.engines.slurm.tables import SEPARATOR, number, read_table, value
from fairlead.model.slurm_text import duration_s, gpus_by_type

COLUMNS = (
    "JobArrayID",
    "JobID",
    "HetJobID",
    "State",
    "Reason",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "NumNodes",
    "NodeList",
    "ReqNodes",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "tres-per-socket",
    "NumTasks",
    "exit_code",
    "StartTime",
    "EndTime",
    "SubmitTime",
    "TimeLimit",
    "RestartCnt",
    "PriorityLong",
    "Feature",
    "Dependency",
    "Name",
    "Comment",
)


class JobStage(Enum):
    """How far a job is, which is all that a state of Slurm means to us."""

    PENDING = auto()
    ACTIVE = auto()  # it has GPUs, or still holds them while it ends
    DONE = auto()
    LOST = auto()  # it ended without having been allowed to: its node failed, or it was cancelled or pre-empted
    UNKNOWN = auto()  # a state of a newer version


_STAGES = {
    JobStage.PENDING: (
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    ),
    JobStage.ACTIVE: (
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "STAGE_OUT",
        "RESIZING",
        "EXPEDITING",
    ),
    JobStage.DONE: ("COMPLETED", "FAILED", "OUT_OF_MEMORY"),
    JobStage.LOST: (
        "CANCELLED",
        "NODE_FAIL",
        "PREEMPTED",
        "TIMEOUT",
        "DEADLINE",
        "BOOT_FAIL",
        "LAUNCH_FAILED",
        "REVOKED",
    ),
}
_STAGE_OF = {state: stage for stage, states in _STAGES.items() for state in states}


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, one task of an array, or one component of a heterogeneous job."""

    id: str  # 12, 12_3 for a task of an array, 12+1 for a component
    number: str  # that of a task of an array is the array's until the task is split off: commands take its id
    leader: str  # the number of the first component, or its own
    state: str
    reason: str
    user: str
    account: str
    partition: str
    qos: str
    nodes: int
    node_list: str  # where it runs or ran, in Slurm's notation
    required_nodes: str  # where it has to run
    gpus_per_node: dict[str, int]  # as requested, by type; "" for any type
    gpus_per_job: dict[str, int]
    gpus_per_task: dict[str, int]
    gpus_per_socket: dict[str, int]
    tasks: int
    exit_code: int | None
    start: str  # times are in Slurm's words, in the time zone of the command: UTC if we ran it
    end: str
    submit: str
    time_limit_s: float | None
    restarts: int
    held: bool
    features: str
    dependency: str
    name: str
    comment: str

    @property
    def stage(self) -> JobStage:
        return _STAGE_OF.get(self.state, JobStage.UNKNOWN)

    @property
    def waits_for_others(self) -> bool:
        """Whether jobs that it depends on are not over yet; Slurm clears a dependency that is fulfilled."""
        return bool(self.dependency)


def read_queue(text: str, columns: Sequence[str] = COLUMNS, separator: str = SEPARATOR) -> list[SlurmJob]:
    """The jobs in the order in which they were printed. Columns that an older record lacks are empty."""
    return [_job({**dict.fromkeys(COLUMNS, ""), **row}) for row in read_table(text, columns, separator)]


def _job(row: dict[str, str]) -> SlurmJob:
    number_ = value(row["JobID"])
    return SlurmJob(
        id=value(row["JobArrayID"]) or number_,
        number=number_,
        leader=_leader(row["HetJobID"]) or number_,
        state=value(row["State"]),
        reason=value(row["Reason"]),
        user=value(row["UserName"]),
        account=value(row["Account"]),
        partition=value(row["Partition"]),
        qos=value(row["QOS"]),
        nodes=number(row["NumNodes"]) or 1,
        node_list=value(row["NodeList"]),
        required_nodes=value(row["ReqNodes"]),
        gpus_per_node=gpus_by_type(value(row["tres-per-node"])),
        gpus_per_job=gpus_by_type(value(row["tres-per-job"])),
        gpus_per_task=gpus_by_type(value(row["tres-per-task"])),
        gpus_per_socket=gpus_by_type(value(row["tres-per-socket"])),
        tasks=number(row["NumTasks"]) or 1,
        exit_code=_exit_code(row["exit_code"]),
        start=value(row["StartTime"]),
        end=value(row["EndTime"]),
        submit=value(row["SubmitTime"]),
        time_limit_s=duration_s(row["TimeLimit"]),
        restarts=number(row["RestartCnt"]) or 0,
        held=value(row["PriorityLong"]) == "0" or value(row["Reason"]) in _HELD,
        features=value(row["Feature"]),
        dependency=value(row["Dependency"]),
        name=row["Name"].strip(),
        comment=value(row["Comment"]),
    )


_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "SPECIAL_EXIT", "job requeued in held state")


def _leader(het_job: str) -> str:
    leader = value(het_job)
    return "" if leader == "0" else leader


def _exit_code(text: str) -> int | None:
    """`7:0` is code 7, `0:15` signal 15 as shells count it, and older versions print the raw status of `wait`."""
    code, colon, killed_by = text.strip().partition(":")
    if not code.isdigit() or (colon and not killed_by.isdigit()):
        return None
    exited, by_signal = (int(code), int(killed_by)) if colon else (int(code) >> 8, int(code) & 0x7F)
    return 128 + by_signal if by_signal else exited
