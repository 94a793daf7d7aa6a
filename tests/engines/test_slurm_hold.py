"""job_submit.lua on a real Slurm: jobs of the steered partition wait for Fairlead, and only for Fairlead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead.engines.slurm.holds import OWN_HOLD
from slurm_cluster import OPERATOR, STEERED, SlurmCluster, missing, steered_cluster
from waiting import wait_for

pytestmark = pytest.mark.slow
JOB = ("--gres=gpu:1", f"--partition={STEERED}", "--output=/dev/null")


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    reason = missing(accounting=True)
    if reason is not None:
        pytest.skip(reason)
    yield steered_cluster()
    steered_cluster().clear()


def state(slurm: SlurmCluster, job: str) -> str:
    return slurm.run("squeue", "-h", "--states=all", f"--jobs={job}", "-o", "%T").strip()


def priority(slurm: SlurmCluster, job: str) -> str:
    return slurm.run("squeue", "-h", f"--jobs={job}", "-O", "PriorityLong:|,Comment:|").strip()


def test_jobs_of_the_partition_wait_until_the_operator_releases_them(slurm: SlurmCluster) -> None:
    job = slurm.submit("games", "true", *JOB)
    foreign = slurm.submit("news", "true", "--output=/dev/null")
    wait_for(lambda: state(slurm, foreign) == "COMPLETED", "a job of another partition to end")

    assert priority(slurm, job).startswith("0|")
    slurm.run_as(OPERATOR, "scontrol", "update", f"jobid={job}", "NodeList=v100-2")
    slurm.run_as(OPERATOR, "scontrol", "release", job)

    wait_for(lambda: state(slurm, job) == "COMPLETED", "the released job to end")
    wait_for(
        lambda: (
            slurm.run("sacct", "-nXP", f"--jobs={job}", "-o", "User,Account,NodeList").strip() == "games|vision|v100-2"
        ),
        "its user, account and node to be in the accounting",
    )


@pytest.mark.parametrize("change", ["release {job}", "update jobid={job} nodelist=k80-1", "update jobid={job} nice=50"])
def test_its_owner_cannot_start_a_job(slurm: SlurmCluster, change: str) -> None:
    job = slurm.submit("games", "true", *JOB)

    assert "denied" in slurm.run_as("games", "scontrol", *change.format(job=job).split(), check=False)

    assert priority(slurm, job).startswith("0|")


@pytest.mark.parametrize("change", ["timelimit=5", "qos=normal", "account=vision", "comment=x", "priority=900"])
def test_other_changes_by_its_owner_do_not_start_it(slurm: SlurmCluster, change: str) -> None:
    job = slurm.submit("games", "true", *JOB)

    slurm.run_as("games", "scontrol", "update", f"jobid={job}", change, check=False)

    assert priority(slurm, job).startswith("0|")


def test_the_owner_holds_a_job_and_gives_it_back_to_fairlead(slurm: SlurmCluster) -> None:
    for comment in ("", "fairlead: steps=100"):
        job = slurm.submit("games", "true", *JOB, f"--comment={comment}")

        slurm.run_as("games", "scontrol", "hold", job)
        assert priority(slurm, job) == f"0|{comment} {OWN_HOLD}|".replace("| ", "|")
        slurm.run_as("games", "scontrol", "release", job)

        assert priority(slurm, job) == f"0|{comment or 'released'}|"


def test_a_hold_at_submission_is_the_owners(slurm: SlurmCluster) -> None:
    job = slurm.submit("games", "true", "--hold", "--comment=mine", *JOB)
    assert priority(slurm, job) == f"0|mine {OWN_HOLD}|"


def test_a_job_that_moves_to_another_partition_is_slurms_again(slurm: SlurmCluster) -> None:
    job = slurm.submit("games", "true", *JOB)

    slurm.run_as("games", "scontrol", "update", f"jobid={job}", "partition=all")

    wait_for(lambda: state(slurm, job) == "COMPLETED", "the job to run in the other partition")


def test_a_job_that_moves_in_is_held(slurm: SlurmCluster) -> None:
    job = slurm.submit("games", "true", "--begin=now+1hour", "--output=/dev/null")

    slurm.run_as("games", "scontrol", "update", f"jobid={job}", f"partition={STEERED}")

    assert priority(slurm, job).startswith("0|")


def test_a_job_that_names_no_partition_is_held_if_the_steered_one_is_the_default(slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", f"PartitionName={STEERED}", "Default=YES")
    try:
        job = slurm.submit("games", "true", "--output=/dev/null")
    finally:
        slurm.run("scontrol", "update", "PartitionName=all", "Default=YES")

    assert priority(slurm, job).startswith("0|")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("srun true", "takes batch jobs only"),
        ("sbatch --nodelist=k80-1 --wrap=true", "chooses the nodes"),
        ("sbatch --no-requeue --wrap=true", "may be stopped and started again"),
        (f"sbatch --partition=all,{STEERED} --wrap=true", "name it alone"),
    ],
)
def test_what_cannot_be_steered_is_refused_with_a_sentence(slurm: SlurmCluster, words: str, sentence: str) -> None:
    program, *options = words.split()
    assert sentence in slurm.run_as("games", program, f"--partition={STEERED}", *options, check=False)


def test_a_priority_that_an_ordinary_user_asks_for_does_not_release(slurm: SlurmCluster) -> None:
    job = slurm.submit("games", "true", "--priority=1000", *JOB)
    assert priority(slurm, job).startswith("0|")


def test_jobs_run_while_slurmdbd_is_away_and_are_accounted_for_later(slurm: SlurmCluster) -> None:
    slurm.kill("slurmdbd")
    job = slurm.submit("games", "exit 3", *JOB)
    slurm.run_as("root", "scontrol", "release", job)
    wait_for(lambda: state(slurm, job) == "FAILED", "the job to end without the database")

    slurm.start_database()

    wait_for(
        lambda: (
            slurm.run("sacct", "-nXP", f"--jobs={job}", "-o", "User,State,ExitCode", check=False).strip()
            == "games|FAILED|3:0"
        ),
        "slurmctld to send what it kept",
    )
