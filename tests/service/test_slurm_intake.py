"""Taking over the jobs of a steered partition, from a made-up queue into a real store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fairlead.engines.requests import Release
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.holds import OWN_HOLD
from fairlead.engines.slurm.intake import SteeredPartition
from fairlead.engines.slurm.machines import COLUMNS as NODE_COLUMNS
from fairlead.engines.slurm.queue import COLUMNS as JOB_COLUMNS
from fairlead.engines.slurm.shared_looks import LookReader, SharedLook, write_look
from fairlead.engines.slurm.tables import SEPARATOR
from fairlead.model.events import Cancelled
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.process.slurm_intake import SlurmIntake
from fairlead.service.store import changes
from fairlead.service.store.steered_jobs import steered_jobs
from serving import World, world
from waiting import PATIENCE_S, wait_for

FREE = {"PriorityLong": "100", "Reason": "Resources"}


def waiting(id_: str, **fields: str) -> dict[str, str]:
    """A job on hold for one GPU, but for these columns."""
    row = dict.fromkeys(JOB_COLUMNS, "") | {"JobArrayID": id_, "JobID": id_, "State": "PENDING", "NumNodes": "1"}
    row |= {"PriorityLong": "0", "Reason": "JobHeldUser", "tres-per-node": "gres:gpu:1", "Account": "vision"}
    return row | fields


class SlurmThatRefuses(Slurm):
    """A queue on one node without accounting, which refuses to change some of its jobs."""

    def __init__(self, *jobs: dict[str, str], refuses: str = "") -> None:
        super().__init__()
        self.jobs, self.refuses = jobs, refuses

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[0] == "squeue":
            return "\n".join(SEPARATOR.join(job[name] for name in JOB_COLUMNS) + SEPARATOR for job in self.jobs)
        if words[0] == "sinfo":
            node = dict(zip(NODE_COLUMNS, ["n1", "n1", "idle", "gpu:v100:4", "gpu:v100:0", "fair", ""], strict=True))
            return SEPARATOR.join(node.values()) + SEPARATOR
        if words[0] != "scontrol" or words[-1] == self.refuses:
            raise SlurmError(f"{words[0]}: not permitted")
        return ""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def intake_of(here: World, slurm: Slurm) -> SlurmIntake:
    return SlurmIntake(SteeredPartition("fair"), here.service.writer, here.service.reads, slurm)


@pytest.mark.parametrize("refused", [{"tres-per-node": ""}, FREE], ids=["handed back", "held first"])
def test_a_job_that_slurm_refuses_to_change_does_not_keep_others_out(here: World, refused: dict[str, str]) -> None:
    slurm = SlurmThatRefuses(waiting("7", **refused), waiting("8"), refuses="7")

    with pytest.raises(SlurmError, match="job 7: scontrol: not permitted"):
        intake_of(here, slurm).look()

    assert list(steered_jobs(here.service.reads)) == ["8"], "what could not be held is not taken over"


class SlurmThatIsFaster(SlurmThatRefuses):
    """Starts a job before it can be held."""

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[:2] == ("scontrol", "uhold"):
            self.jobs = (waiting("8", State="RUNNING"),)
        return super().run(*words, environment=environment)


def test_a_job_that_slurm_starts_before_it_is_held_is_not_taken_over(here: World) -> None:
    intake_of(here, SlurmThatIsFaster(waiting("8", **FREE))).look()

    assert steered_jobs(here.service.reads) == {}


def test_the_log_says_how_a_job_really_ended_that_somebody_else_released(
    here: World, capfd: pytest.CaptureFixture[str]
) -> None:
    slurm = SlurmThatRefuses(waiting("8"))
    intake = intake_of(here, slurm)
    intake.look()
    job = steered_jobs(here.service.reads)["8"].job

    slurm.jobs = (waiting("8", State="FAILED", PriorityLong="100", Reason="NonZeroExitCode", exit_code="3:0"),)
    for _ in range(3):
        intake.look()

    assert f"job {job} is listed as cancelled" in (error := capfd.readouterr().err)
    assert error.strip().endswith("Slurm: job 8 FAILED with exit code 3")


class SlurmOfAnImpatientOwner(SlurmThatRefuses):
    """Its jobs are held by their owner right after a look."""

    released: tuple[str, ...] = ()

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[0] == "sinfo":
            self.jobs = tuple(job | {"Comment": OWN_HOLD} for job in self.jobs)
        if words[:2] == ("scontrol", "release"):
            self.released += (words[-1],)
        return super().run(*words, environment=environment)


def test_a_job_that_its_owner_holds_meanwhile_is_not_released_when_it_is_handed_back(here: World) -> None:
    slurm = SlurmOfAnImpatientOwner(waiting("7", **{"tres-per-node": ""}))

    intake_of(here, slurm).look()

    assert slurm.released == ()


class SlurmWhoseJobEnds(SlurmThatRefuses):
    """Its job starts and ends right after a look at the queue, and our log knows it at once."""

    ends: Callable[[], None] = staticmethod(lambda: None)

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[0] == "sinfo":
            self.ends()
        return super().run(*words, environment=environment)


def test_a_job_that_ends_between_a_look_and_its_reading_is_not_taken_again(here: World) -> None:
    slurm = SlurmWhoseJobEnds(waiting("8"))
    intake = intake_of(here, slurm)
    intake.look()
    here.take()

    def ends() -> None:
        here.happen(Cancelled(time.time(), np.array([0])))
        here.log.commit(here.log.taken)

    slurm.ends = ends
    intake.look()

    assert here.service.reads.rows("SELECT count(*) FROM jobs")[0][0] == 1


def test_a_job_that_slurm_holds_is_paused_again_if_somebody_releases_it_here(here: World) -> None:
    slurm = SlurmThatRefuses(waiting("8"))
    intake = intake_of(here, slurm)
    intake.look()
    slurm.jobs = (waiting("8", Reason="JobHeldAdmin"),)
    intake.look()
    ours = steered_jobs(here.service.reads)["8"]
    assert ours.held

    here.service.writer.write_now(changes.ask("a user", Release(ours.job)))
    assert not steered_jobs(here.service.reads)["8"].held
    intake.look()

    assert steered_jobs(here.service.reads)["8"].held


def test_a_job_that_has_left_is_cancelled_once_however_long_that_takes(here: World) -> None:
    slurm = SlurmThatRefuses(waiting("8"))
    intake = intake_of(here, slurm)
    intake.look()
    slurm.jobs = (waiting("8", State="CANCELLED"),)
    for _ in range(3):
        intake.look()

    requests = here.service.reads.rows("SELECT count(*) FROM requests WHERE kind = 'cancel'")
    assert requests[0][0] == 1


class SlurmOfAnAdministrator(SlurmThatRefuses):
    """Its job is released by root, and runs."""

    requeued = 0

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[:2] == ("scontrol", "requeuehold"):
            self.requeued += 1
            self.jobs = (waiting("8", RestartCnt="1", Reason="job requeued in held state"),)
        return super().run(*words, environment=environment)


def test_a_job_that_root_releases_goes_back_to_the_queue_and_stays_ours(here: World) -> None:
    slurm = SlurmOfAnAdministrator(waiting("8"))
    intake = intake_of(here, slurm)
    intake.look()
    intake.look()
    slurm.jobs = (waiting("8", State="RUNNING", RestartCnt="0", **FREE),)
    for _ in range(5):
        intake.look()

    assert slurm.requeued == 1
    assert not steered_jobs(here.service.reads)["8"].leaves
    assert here.service.reads.rows("SELECT count(*) FROM requests WHERE kind = 'cancel'")[0][0] == 0


class SlurmThatCounts(SlurmThatRefuses):
    """Counts how often it is asked."""

    asked = 0

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        self.asked += words[0] in ("squeue", "sinfo")
        return super().run(*words, environment=environment)


def test_the_schedulers_looks_are_used_and_slurm_is_not_asked_again(here: World, tmp_path: Path) -> None:
    slurm, path = SlurmThatCounts(waiting("8")), tmp_path / "look"
    jobs, nodes = {job.id: job for job in slurm.queue()}, slurm.nodes()
    slurm.asked = 0
    intake = SlurmIntake(
        SteeredPartition("fair"),
        here.service.writer,
        here.service.reads,
        slurm,
        look_s=PATIENCE_S,
        shared=LookReader(path, "fair"),
    )
    intake.start()

    def taken() -> bool:
        write_look(path, "fair", SharedLook(time.monotonic(), jobs, nodes))
        return list(steered_jobs(here.service.reads)) == ["8"]

    wait_for(taken, "the job to be taken over")
    intake.stop()

    assert slurm.asked == 0


def test_slurm_is_asked_if_the_scheduler_does_not_look(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision may take a minute, in which jobs still arrive."""
    monkeypatch.setattr("fairlead.service.process.slurm_intake._LATE_S", 0.0)
    slurm, shared = SlurmThatCounts(waiting("8")), LookReader(tmp_path / "look", "fair")
    intake = SlurmIntake(SteeredPartition("fair"), here.service.writer, here.service.reads, slurm, 0.0, shared)

    assert not intake.look()

    assert (slurm.asked, list(steered_jobs(here.service.reads))) == (2, ["8"])


class SlurmWithANewFormat(SlurmThatRefuses):
    """Prints what our readers do not expect, for a while."""

    def __init__(self, *jobs: dict[str, str]) -> None:
        super().__init__(*jobs)
        self.unreadable = True

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if self.unreadable:
            raise ValueError("no such column")
        return super().run(*words, environment=environment)


def test_an_unexpected_error_is_reported_and_the_look_repeated(
    here: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fairlead.service.process.slurm_intake.LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr("fairlead.service.process.slurm_intake.OVERDUE_S", 0.0)
    slurm = SlurmWithANewFormat(waiting("8"))
    intake = SlurmIntake(SteeredPartition("fair"), here.service.writer, here.service.reads, slurm, look_s=0.01)
    intake.start()

    def state() -> SchedulerState:
        return intake.added_to(SchedulerState(ready=True))

    wait_for(lambda: state().intake is not None, "the error to be noticed")
    assert state().intake == "unexpected ValueError: no such column"
    assert state().intake_overdue
    slurm.unreadable = False
    wait_for(lambda: list(steered_jobs(here.service.reads)) == ["8"], "the job to be taken over all the same")
    wait_for(lambda: state().intake is None, "the problem to be over")
    intake.stop()
    printed = capfd.readouterr().err
    assert printed.count("Traceback") == 1, "each problem once"
    assert "partition fair: its jobs are taken over again" in printed


def test_a_service_that_cannot_take_over_jobs_is_degraded(tmp_path: Path) -> None:
    failing = SchedulerState(ready=True, intake="slurmctld does not answer", intake_overdue=True)
    with world(tmp_path, scheduler=lambda: failing) as here:
        health = here.client.get("/v1/health")
        status = here.client.get("/v1/status", headers=here.admin).json()

    assert (health.status_code, health.json()["status"], health.json()["intake_overdue"]) == (503, "degraded", True)
    assert status["scheduler"]["intake"] == "slurmctld does not answer"
