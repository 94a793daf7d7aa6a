"""A Slurm in memory: it prints what `squeue` and `sinfo` print, and obeys the commands with which jobs are steered.

A job that is released runs at once on the nodes that it is pinned to, or on the first one. It saves and leaves with 85 when
it gets USR1, and is then on hold. Time does not pass: tests say when a job ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.machines import COLUMNS as NODE_COLUMNS
from fairlead.engines.slurm.queue import COLUMNS as JOB_COLUMNS
from fairlead.engines.slurm.tables import SEPARATOR

CHECKPOINTED = 85 << 8  # raw, as Slurm 22.05 prints it


@dataclass(frozen=True)
class FakeJob:
    state: str = "PENDING"
    held: bool = True
    reason: str = "JobHeldUser"
    restarts: int = 0
    exit_code: int = 0
    pinned: str = ""  # to nodes

    @property
    def active(self) -> bool:
        return self.state == "RUNNING"


class FakeSlurm(Slurm):
    """One partition with a GPU type for each node. `ran` is every command, for those who count them."""

    def __init__(self, nodes: dict[str, tuple[str, int]], partition: str = "fair", *, full: bool = False) -> None:
        super().__init__()
        self.nodes_, self.partition, self.full = nodes, partition, full  # type and GPUs by name
        self.jobs = dict[str, FakeJob]()
        self.ran = list[tuple[str, ...]]()

    def submit_held(self, *ids: str) -> None:
        self.jobs |= dict.fromkeys(ids, FakeJob())

    def end(self, id_: str, exit_code: int = 0) -> None:
        state = "FAILED" if exit_code else "COMPLETED"
        self.jobs[id_] = replace(self.jobs[id_], state=state, exit_code=exit_code << 8)

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        self.ran.append(words)
        match words:
            case ["squeue", *options]:
                return self._squeue(options)
            case ["sinfo", *_]:
                return "".join(self._sinfo(name) for name in self.nodes_)
            case ["scontrol", "update", job, *changes]:
                self._update(job.removeprefix("jobid="), changes)
            case ["scontrol", "release", id_]:
                self._release(id_)
            case ["scontrol", "uhold", id_]:
                self._hold(id_)
            case ["scontrol", "requeuehold", id_]:
                self._requeue(id_, "PENDING", "job requeued in held state", 0)
            case ["scancel", "--signal=USR1", "--batch", id_]:
                if self.jobs[id_].active:
                    self._requeue(id_, "SPECIAL_EXIT", "JobHeldUser", CHECKPOINTED)
            case _:
                raise SlurmError(f"{words[0]}: not permitted")
        return ""

    def count(self, *words: str) -> int:
        """How often a command that begins with these words was run."""
        return sum(ran[: len(words)] == words for ran in self.ran)

    def _release(self, id_: str) -> None:
        job = replace(self.jobs[id_], held=False, reason="Resources")
        runs = job.state in ("PENDING", "SPECIAL_EXIT") and not self.full
        self.jobs[id_] = replace(job, state="RUNNING" if runs else "PENDING", exit_code=0)

    def _hold(self, id_: str) -> None:
        job = self.jobs[id_]
        if job.state in ("COMPLETED", "FAILED"):
            raise SlurmError(f"Job/step already completing or completed for job {id_}")
        self.jobs[id_] = replace(job, held=True, reason=job.reason if job.active else "JobHeldUser")

    def _requeue(self, id_: str, state: str, reason: str, exit_code: int) -> None:
        job = self.jobs[id_]
        self.jobs[id_] = FakeJob(state, True, reason, job.restarts + 1, exit_code, job.pinned)

    def _update(self, id_: str, changes: list[str]) -> None:
        for name, _, text in (change.partition("=") for change in changes):
            if name == "NodeList":
                self.jobs[id_] = replace(self.jobs[id_], pinned=text)

    def _squeue(self, options: list[str]) -> str:
        wanted = next((option.removeprefix("--jobs=") for option in options if option.startswith("--jobs=")), "")
        if wanted and wanted not in self.jobs:
            raise SlurmError("Invalid job id specified")
        return "".join(self._line(id_, job) for id_, job in self.jobs.items() if wanted in ("", id_))

    def _line(self, id_: str, job: FakeJob) -> str:
        row = dict.fromkeys(JOB_COLUMNS, "") | {"JobArrayID": id_, "JobID": id_, "NumNodes": "1", "Account": "vision"}
        row |= {"State": job.state, "Reason": job.reason, "RestartCnt": str(job.restarts), "ReqNodes": job.pinned}
        row |= {"PriorityLong": "0" if job.held else "100", "exit_code": str(job.exit_code)}
        row |= {"tres-per-node": "gres:gpu:1", "NodeList": self._node_of(job) if job.active else ""}
        return SEPARATOR.join(row[name] for name in JOB_COLUMNS) + SEPARATOR + "\n"

    def _node_of(self, job: FakeJob) -> str:
        return job.pinned or next(iter(self.nodes_))

    def _sinfo(self, name: str) -> str:
        type_, gpus = self.nodes_[name]
        used = sum(job.active and self._node_of(job) == name for job in self.jobs.values())
        fields = [name, name, "idle", f"gpu:{type_}:{gpus}", f"gpu:{type_}:{used}", self.partition, ""]
        return SEPARATOR.join(dict(zip(NODE_COLUMNS, fields, strict=True)).values()) + SEPARATOR + "\n"
