"""Takes over the jobs of a steered partition as requests of our own, in a thread of the API process.

Requests are stored like those of users, so that a job is in requests.db before anything is decided about it. The thread
needs nothing that survives it: what it has taken over is read from the store at every look.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairlead.engines.requests import Cancel, Hold, Release, SetTenant
from fairlead.engines.slurm.accounts import LIMITS, SHARES, SlurmAccounts, read_quotas, read_weights
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.holds import HeldBy, holder
from fairlead.engines.slurm.intake import (
    ContinueJob,
    HandBack,
    HoldBack,
    Intake,
    Leave,
    PauseJob,
    SteeredPartition,
    Step,
    Take,
    TakeBack,
)
from fairlead.engines.slurm.job_requests import Site, site_of
from fairlead.engines.slurm.lease_runner import LOOK_S
from fairlead.engines.slurm.machines import SlurmNode
from fairlead.engines.slurm.queue import JobStage
from fairlead.engines.slurm.shared_looks import LookReader, SharedLook
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.store import changes
from fairlead.service.store.commits import FencedError
from fairlead.service.store.database import DATABASE_ERROR, DiskFullError
from fairlead.service.store.reads import Reads
from fairlead.service.store.request_queue import Submission
from fairlead.service.store.steered_jobs import ACTOR, steered_jobs
from fairlead.service.store.writer import Writer

OVERDUE_S = 60.0  # without a look that succeeded
LONGEST_PAUSE_S = 60.0  # after unexpected errors, which may be expensive
_LATE_S, _PAUSE_S = 1.0, 0.2  # of the scheduler's looks, and between two glances at its file
ACCOUNTS_S = 3600.0  # between two looks at weights and limits
_WITHOUT_US = "is listed as cancelled, because somebody else started it; Slurm"
_NOT_OURS = "somebody else has released it; move it to another partition to let Slurm schedule it"


class SlurmIntake:
    """Looks at the partition until it is stopped. A look that fails is repeated, whatever the reason."""

    def __init__(
        self,
        partition: SteeredPartition,
        writer: Writer,
        reads: Reads,
        slurm: Slurm | None = None,
        look_s: float = LOOK_S,
        shared: LookReader | None = None,
    ) -> None:
        self._partition, self._writer, self._reads = partition, writer, reads
        self._slurm, self._look_s, self._shared = slurm or Slurm(), look_s, shared
        self._intake = Intake()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="slurm intake", daemon=True)
        self._problem = ""
        self._succeeded_s = time.monotonic()  # the last look
        self._terms: dict[str, SetTenant] = {}
        self._accounts_due_s = 0.0  # by the monotonic clock

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)

    def look(self) -> bool:
        """One look, and what follows from it; whether the look was the scheduler's, for which this has waited."""
        began_s = time.monotonic()
        known = steered_jobs(self._reads)  # first: a job that ends after the look at the queue must not be taken again
        look = self._wait_for_look(began_s)
        is_shared = look is not None
        if look is None and self._stopping.is_set():
            return is_shared
        if look is None:
            jobs = {job.id: job for job in self._slurm.queue(partition=self._partition.name)}
            look = SharedLook(began_s, jobs, self._slurm.nodes())
        site = self._site(look.nodes)
        self._look_at_accounts(site)
        self._take_all(list(self._intake.steps(look.jobs, known, site)))
        return is_shared

    def _wait_for_look(self, after_s: float) -> SharedLook | None:
        """The scheduler's next look at the same queue; None if it is overdue, such as during a long decision."""
        give_up_s = after_s + self._look_s + _LATE_S
        while self._shared is not None and time.monotonic() < give_up_s:
            look = self._shared.look_after(after_s)
            if look is not None:
                return look
            if self._stopping.wait(_PAUSE_S):
                break
        return None

    def _take_all(self, steps: Sequence[Step]) -> None:
        """Take each step. What Slurm refuses about one job concerns no other; that job is not taken over yet."""
        refused: dict[str, SlurmError] = {}
        begun: set[str] = set()
        for step in steps:
            if isinstance(step, Take) and (step.slurm_job.id in refused or step.slurm_job.id in begun):
                continue
            try:
                self._take(step)
                if isinstance(step, HoldBack) and not self._waits(step.slurm_job.id):
                    begun.add(step.slurm_job.id)  # Slurm was faster; the hold counts if it is ever requeued
            except SlurmError as error:
                if error.lost or not isinstance(step, HoldBack | TakeBack | HandBack):
                    raise
                refused[step.slurm_job.id] = error
        if refused:
            raise SlurmError("; ".join(f"job {id_}: {error}" for id_, error in refused.items()))

    def _waits(self, id_: str) -> bool:
        job = self._slurm.job(id_)
        return job is not None and job.stage is JobStage.PENDING and job.held

    def _is_held_by_others(self, id_: str) -> bool:
        """Whether somebody has held the job since the look, so that it must not be released."""
        job = self._slurm.job(id_)
        return job is not None and holder(job) in (HeldBy.OWNER, HeldBy.ADMINISTRATOR)

    def _site(self, nodes: Mapping[str, SlurmNode]) -> Site:
        partition = self._partition
        ours = [node for node in nodes.values() if partition.name in node.partitions]
        return site_of(ours, partition.aliases, partition.models, partition.default_model)

    def _look_at_accounts(self, site: Site) -> None:
        """Accounts are tenants, with their shares as weights and their limits as quotas, where Slurm has any."""
        if time.monotonic() < self._accounts_due_s:
            return
        self._accounts_due_s = time.monotonic() + ACCOUNTS_S
        accounts = read_accounts(self._slurm, site)
        for name in (*accounts.weights, *(name for name in accounts.quotas if name not in accounts.weights)):
            terms = SetTenant(name, accounts.weights.get(name, 1.0), accounts.quotas.get(name, ()))
            if self._terms.get(name) != terms:
                self._writer.write_now(changes.ask(ACTOR, terms))
                self._terms[name] = terms

    def added_to(self, state: SchedulerState) -> SchedulerState:
        """The state of the service with what is wrong with its looks at Slurm."""
        overdue = time.monotonic() > self._succeeded_s + OVERDUE_S
        return replace(state, intake=self._problem or None, intake_overdue=overdue)

    def _keep_looking(self) -> None:
        """Look until this is stopped. A mistake of ours does not end it: nobody would notice, and jobs would wait."""
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            mistake = is_shared = False
            try:
                is_shared = self.look()
                self._succeeded_s = time.monotonic()
                self._note("")
            except SlurmError as error:
                self._note(str(error))
            except FencedError:
                return  # another service has taken over
            except (DiskFullError, DATABASE_ERROR) as error:
                self._note(f"the store cannot be used: {error}")
            except Exception as error:
                mistake = True
                self._note(f"unexpected {type(error).__name__}: {error}", traceback.format_exc())
            usual_s = 0.0 if is_shared else self._look_s
            pause_s = min(2 * max(pause_s, self._look_s), LONGEST_PAUSE_S) if mistake else usual_s

    def _note(self, problem: str, details: str = "") -> None:
        """Report each problem once, until it changes, and its end."""
        if problem != self._problem:
            message = problem or "its jobs are taken over again"
            print(f"fairlead: partition {self._partition.name}: {message}", file=sys.stderr, flush=True)
            print(details, end="", file=sys.stderr, flush=True)
        self._problem = problem

    def _take(self, step: Step) -> None:
        match step:
            case Take(slurm_job, spec, command):
                submission = Submission(f"{slurm_job.id} {slurm_job.name}", spec, command)
                self._writer.write_now(changes.submit(ACTOR, submission, None))
            case HoldBack(slurm_job):
                self._slurm.run("scontrol", "uhold", slurm_job.id)
            case TakeBack(slurm_job):
                now = self._slurm.job(slurm_job.id)  # Slurm would run one that has ended again
                if now is not None and now.state == "RUNNING":
                    self._slurm.run("scontrol", "requeuehold", slurm_job.id)
                    print(f"fairlead: job {slurm_job.id} is taken back: {_NOT_OURS}", file=sys.stderr, flush=True)
            case HandBack(slurm_job, reason):
                if self._is_held_by_others(slurm_job.id):
                    return
                self._slurm.run("scontrol", "release", slurm_job.id)
                print(f"fairlead: job {slurm_job.id} is left to Slurm: {reason}", file=sys.stderr, flush=True)
            case Leave(job, ended):
                self._writer.write_now(changes.ask(ACTOR, Cancel(job)))
                if ended:
                    print(f"fairlead: job {job} {_WITHOUT_US}: {ended}", file=sys.stderr, flush=True)
            case PauseJob(job):
                self._writer.write_now(changes.ask(ACTOR, Hold(job)))
            case ContinueJob(job):
                self._writer.write_now(changes.ask(ACTOR, Release(job)))


def read_accounts(slurm: Slurm, site: Site) -> SlurmAccounts:
    """Empty where Slurm has no accounting database."""
    try:
        weights = read_weights(slurm.run(*SHARES))
        quotas, notes = read_quotas(slurm.run(*LIMITS), site.types, site.aliases)
    except SlurmError:
        return SlurmAccounts()
    return SlurmAccounts(weights, quotas, notes)
