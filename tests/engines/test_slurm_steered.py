"""What the state of a user's job means for its lease, and which jobs of a partition are taken over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlead.engines.leases import Condition, Gpu, Lease
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.holds import OWN_HOLD
from fairlead.engines.slurm.intake import (
    ContinueJob,
    HandBack,
    HoldBack,
    Intake,
    Leave,
    PauseJob,
    Step,
    Take,
    TakeBack,
    TakenOver,
)
from fairlead.engines.slurm.job_requests import Site
from fairlead.engines.slurm.queue import COLUMNS, SlurmJob, read_queue
from fairlead.engines.slurm.steer_runner import SlurmSteerRunner
from fairlead.engines.slurm.steered import Correction, see
from fairlead.engines.slurm.tables import SEPARATOR

SITE = Site(("v100", "k80"))
FAIL, USR1, CHECKPOINTED = 3 << 8, 10, 85 << 8  # raw, as Slurm 22.05 prints them


def slurm_job(id_: str = "7", **fields: str) -> SlurmJob:
    """A job on hold for one GPU, but for these columns."""
    row = dict.fromkeys(COLUMNS, "") | {"JobArrayID": id_, "JobID": id_, "State": "PENDING", "NumNodes": "1"}
    row |= {
        "PriorityLong": "0",
        "Reason": "JobHeldUser",
        "tres-per-node": "gres:gpu:1",
        "Account": "vision",
        "RestartCnt": "0",
    }
    row |= fields
    (job,) = read_queue(SEPARATOR.join(row[column] for column in COLUMNS) + SEPARATOR)
    return job


RELEASED = {"PriorityLong": "100", "Reason": "Resources"}


@pytest.mark.parametrize(
    ("fields", "asked", "condition", "code", "correction"),
    [
        (RELEASED, False, Condition.QUEUED, None, None),
        ({}, False, Condition.NEVER_CLAIMED, None, None),
        ({"State": "RUNNING"}, False, Condition.RUNNING, None, None),
        ({"State": "COMPLETING"}, True, Condition.RUNNING, None, None),
        ({"State": "COMPLETED"}, False, Condition.ENDED, 0, None),
        ({"State": "COMPLETED"}, True, Condition.ENDED, 0, None),
        ({"State": "FAILED", "exit_code": str(FAIL)}, False, Condition.ENDED, 3, None),
        ({"State": "FAILED", "exit_code": str(FAIL)}, True, Condition.ENDED, 3, None),
        ({"State": "TIMEOUT"}, False, Condition.ENDED, 1, None),
        ({"State": "OUT_OF_MEMORY"}, False, Condition.ENDED, 137, None),
        ({"State": "CANCELLED"}, False, Condition.VANISHED, None, None),
        # Requeued: after exit code 85, by `requeuehold`, and by somebody else, who did not hold it.
        ({"State": "SPECIAL_EXIT", "RestartCnt": "1", "exit_code": str(CHECKPOINTED)}, True, Condition.ENDED, 85, None),
        ({"RestartCnt": "1", "Reason": "job requeued in held state"}, True, Condition.VANISHED, None, None),
        ({"RestartCnt": "1", **RELEASED}, False, None, None, Correction.HOLD),
        ({"RestartCnt": "1", "State": "RUNNING"}, False, Condition.RUNNING, None, Correction.REQUEUE),
        # A script without a trap dies of USR1, which is not its fault; without a request it is.
        ({"State": "FAILED", "exit_code": str(USR1)}, True, Condition.RUNNING, None, Correction.REQUEUE),
        ({"State": "FAILED", "exit_code": str(USR1)}, False, Condition.ENDED, 138, None),
        ({"State": "A_NEW_STATE"}, False, None, None, None),
    ],
)
def test_the_state_of_a_job_is_the_condition_of_its_lease(
    fields: dict[str, str], asked: bool, condition: Condition | None, code: int | None, correction: Correction | None
) -> None:
    seen = see(slurm_job(**fields), 0, asked=asked)

    assert (seen.sight and seen.sight.condition, seen.correction) == (condition, correction)
    assert (seen.sight.code if seen.sight else None) == code


def test_a_job_that_was_requeued_before_its_lease_began_is_an_ordinary_one() -> None:
    seen = see(slurm_job(State="RUNNING", RestartCnt="2"), 2, asked=False)

    assert seen.sight is not None
    assert (seen.sight.condition, seen.correction) == (Condition.RUNNING, None)


class SlurmWithOneJob(Slurm):
    """Shows one job, and remembers what was changed."""

    def __init__(self, job: SlurmJob) -> None:
        super().__init__()
        self.shown, self.ran = job, list[tuple[str, ...]]()

    def queue(self, *, mine: bool = False, partition: str = "", jobs: Sequence[str] = ()) -> list[SlurmJob]:
        return [self.shown]

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        self.ran.append(words)
        return ""


@pytest.mark.parametrize(
    ("fields", "who"), [({"Reason": "JobHeldAdmin"}, "administrator"), ({"Comment": OWN_HOLD}, "owner")]
)
def test_what_its_owner_or_an_administrator_holds_is_never_released(
    tmp_path: Path, fields: dict[str, str], who: str
) -> None:
    slurm = SlurmWithOneJob(slurm_job(**fields))
    runner = SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 1})

    with pytest.raises(LaunchError, match=f"held by its {who}"):
        runner.launch(Lease("j1", 1, (Gpu("n1", "v100", None),), Command("", foreign="7")))

    assert slurm.ran == []
    assert runner.numbers("j1") == []


@pytest.mark.parametrize("fields", [{"Reason": "JobHeldAdmin"}, {"Comment": OWN_HOLD}])
def test_a_hold_that_was_set_after_the_last_look_is_not_lifted_by_a_start(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    slurm = SlurmWithOneJob(slurm_job())
    runner = SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 1})
    runner.look([])
    slurm.shown = slurm_job(**fields)
    slurm.ran.clear()

    with pytest.raises(LaunchError, match="held by its"):
        runner.launch(Lease("j1", 1, (Gpu("n1", "v100", None),), Command("", foreign="7")))

    assert slurm.ran == []


class SlurmThatKnowsEnds(SlurmWithOneJob):
    """Refuses to hold a job that is over, as Slurm does."""

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        if words[:2] == ("scontrol", "uhold") and self.shown.state == "FAILED":
            raise SlurmError("Job/step already completing or completed for job 7")
        return super().run(*words, environment=environment)


def test_a_job_that_was_killed_before_it_is_asked_to_stop_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 137 while nobody looks, such as when it runs out of memory; then Fairlead wants its GPUs."""
    monkeypatch.setattr("fairlead.engines.slurm.steer_runner.BEGINS_S", 0.0)
    slurm = SlurmThatKnowsEnds(slurm_job())
    runner = SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 1})
    lease = Lease("j1", 1, (Gpu("n1", "v100", None),), Command("", foreign="7"))
    runner.launch(lease)
    slurm.shown = slurm_job(State="RUNNING")
    assert runner.look([lease.key]).sight(lease.key).condition is Condition.RUNNING
    slurm.shown = slurm_job(State="FAILED", exit_code="9")
    slurm.ran.clear()

    assert not runner.ask_to_stop(lease)
    sight = runner.look([lease.key]).sight(lease.key)

    assert (sight.condition, sight.code, sight.asked) == (Condition.ENDED, 137, False)
    assert ("scontrol", "requeuehold", "7") not in slurm.ran, "it would run again"


@pytest.mark.parametrize(
    ("state", "commands"),
    [("RUNNING", [("scontrol", "requeuehold", "7")]), ("COMPLETED", []), ("CANCELLED", []), ("FAILED", [])],
)
def test_a_job_that_has_ended_before_it_is_killed_is_not_run_again(
    tmp_path: Path, state: str, commands: list[tuple[str, ...]]
) -> None:
    slurm = SlurmWithOneJob(slurm_job())
    runner = SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 1})
    lease = Lease("j1", 1, (Gpu("n1", "v100", None),), Command("", foreign="7"))
    runner.launch(lease)
    slurm.shown = slurm_job(State=state)
    slurm.ran.clear()

    runner.kill(lease)

    assert slurm.ran == commands


def steps(job: SlurmJob | None, known: TakenOver | None = None, intake: Intake | None = None) -> list[Step]:
    queue, ours = {} if job is None else {job.id: job}, {} if known is None else {"7": known}
    return list((intake or Intake()).steps(queue, ours, SITE))


def test_a_job_on_hold_is_taken_over_with_its_account_its_shape_and_its_id() -> None:
    (step,) = steps(
        slurm_job("7_3", **{"tres-per-node": "gres:gpu:v100:2", "NumNodes": "2", "Comment": "fairlead: grace=90"})
    )

    assert isinstance(step, Take)
    assert (step.spec.tenant, step.spec.gpus, step.spec.nodes, step.spec.types) == ("vision", 4, 2, ("v100",))
    assert (step.command.foreign, step.command.grace_s) == ("7_3", 90.0)


def test_jobs_are_taken_over_in_the_order_of_their_submission() -> None:
    """For `squeue` prints those that were submitted last first."""
    morning, noon = "2026-11-18T09:00:00", "2026-11-18T12:00:00"
    printed = [("20", morning), ("9_10", noon), ("9_2", noon), ("8", noon)]
    queue = {id_: slurm_job(id_, SubmitTime=at) for id_, at in printed}

    taken = [step.slurm_job.id for step in Intake().steps(queue, {}, SITE) if isinstance(step, Take)]

    assert taken == ["20", "8", "9_2", "9_10"]


def test_a_job_that_nobody_holds_is_held_first() -> None:
    assert [type(step) for step in steps(slurm_job(**RELEASED))] == [HoldBack, Take]


@pytest.mark.parametrize(
    "fields",
    [
        {"Comment": OWN_HOLD},
        {"Reason": "JobHeldAdmin"},
        {"Dependency": "afterok:3(unfulfilled)"},
        {"State": "RUNNING"},
        {"State": "COMPLETED"},
        {"State": "A_NEW_STATE"},
    ],
)
def test_a_job_that_waits_for_something_else_or_runs_is_left_alone(fields: dict[str, str]) -> None:
    assert steps(slurm_job(**fields)) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tres-per-node": ""}, "no GPUs"),
        ({"tres-per-node": "", "tres-per-job": "gres:gpu:3", "NumNodes": "2"}, "equally many"),
    ],
)
def test_a_job_that_cannot_be_scheduled_is_handed_back_with_the_reason(fields: dict[str, str], reason: str) -> None:
    (step,) = steps(slurm_job(**fields))

    assert isinstance(step, HandBack)
    assert reason in step.reason


def test_a_job_that_is_ours_is_not_taken_again() -> None:
    assert steps(slurm_job(), TakenOver("j1")) == []


def test_a_hold_of_its_owner_pauses_a_job_until_it_is_lifted() -> None:
    assert steps(slurm_job(Comment=OWN_HOLD), TakenOver("j1")) == [PauseJob("j1")]
    assert steps(slurm_job(Comment=OWN_HOLD), TakenOver("j1", held=True)) == []
    assert steps(slurm_job(), TakenOver("j1", held=True)) == [ContinueJob("j1")]


def test_a_cancelled_job_leaves_at_once_and_a_missing_or_ended_one_after_three_looks() -> None:
    assert steps(slurm_job(State="CANCELLED"), TakenOver("j1")) == [Leave("j1")]
    failed = slurm_job(State="FAILED", exit_code="9:0")
    done = slurm_job(State="COMPLETED")
    for job, end in ((None, ""), (done, "job 7 COMPLETED"), (failed, "job 7 FAILED with exit code 9")):
        intake = Intake()
        looks = [steps(job, TakenOver("j1"), intake) for _ in range(3)]
        assert looks == [[], [], [Leave("j1", end)]]


@pytest.mark.parametrize("job", [None, slurm_job(State="FAILED", exit_code="9")])
def test_a_job_with_a_lease_does_not_leave_before_a_look_at_the_lease_shows_its_end(job: SlurmJob | None) -> None:
    """Its own exit code counts, however long the scheduler was silent."""
    intake, ours = Intake(), TakenOver("j1", has_lease=True)

    assert [steps(job, ours, intake) for _ in range(10)] == [[]] * 10
    assert steps(slurm_job(State="CANCELLED"), ours, intake) == [Leave("j1")]


def test_a_job_that_was_missing_once_and_is_there_again_stays() -> None:
    intake = Intake()
    for job in (None, None, slurm_job(), None, None):
        assert steps(job, TakenOver("j1"), intake) == []


RUNNING = {"State": "RUNNING", **RELEASED}


def test_a_job_of_ours_that_somebody_else_releases_is_held_again() -> None:
    intake, released = Intake(), slurm_job(**RELEASED)

    assert steps(released, TakenOver("j1"), intake) == [], "it may be a start of ours that is not known yet"
    assert steps(released, TakenOver("j1"), intake) == [HoldBack(released)]


def test_a_job_of_ours_that_runs_without_a_lease_after_it_waited_is_taken_back() -> None:
    intake, runs = Intake(), slurm_job(**RUNNING)
    looks = [steps(job, TakenOver("j1"), intake) for job in (slurm_job(), runs, runs)]

    assert looks == [[], [], [TakeBack(runs)]]


@pytest.mark.parametrize("fields", [RELEASED, RUNNING], ids=["released", "running"])
def test_a_start_of_ours_that_becomes_known_at_the_next_look_is_not_taken_back(fields: dict[str, str]) -> None:
    intake, job = Intake(), slurm_job(**fields)
    before, after = TakenOver("j1"), TakenOver("j1", has_lease=True)
    looks = [(slurm_job(), before), (job, before), (job, after), (job, before)]

    assert [steps(job, known, intake) for job, known in looks] == [[]] * 4


def test_another_run_of_a_job_is_not_taken_back_for_the_one_before() -> None:
    intake = Intake()
    for restarts in ("0", "1", "2"):
        assert steps(slurm_job(**RUNNING, RestartCnt=restarts), TakenOver("j1"), intake) == []


@pytest.mark.parametrize("fields", [RUNNING, {"State": "COMPLETING"}, {"State": "SUSPENDED"}])
def test_a_job_that_ran_before_it_was_seen_to_wait_is_left_alone(fields: dict[str, str]) -> None:
    """It was released while no service ran, and may have worked for hours."""
    intake = Intake()

    assert [steps(slurm_job(**fields), TakenOver("j1"), intake) for _ in range(5)] == [[]] * 5
