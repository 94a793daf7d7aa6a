"""The public row of a job: computed from facts, sent as JSON, read back by a client."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from fairlead.model.errors import FairleadError
from fairlead.model.jobs import JobSpec
from fairlead.model.public_job import COLUMNS, JobFacts, PublicJob, public_job, read_public_job

SPEC = JobSpec("j1", "ann", "resnet-50", 0.0, 2, steps=100.0, types=("v100",))
RUNNING = JobFacts(
    position=0,
    id="j1",
    tenant="ann",
    phase="running",
    arrival_s=1000.0,
    first_start_s=1010.0,
    end_s=None,
    since_s=1010.0,
    type="v100",
    gpus=2,
    spot={"v100-1": 2},
    done=400.0,
    total=1600.0,
    rate=10.0,
    at_s=1020.0,
    resume_s=1010.0,
    attained_gpu_s=3600.0,
    run_s=0.0,
    leases=1,
    restarts=0,
    reason="an old one",
)


def shown(facts: JobFacts | None, now_s: float = 1060.0) -> PublicJob:
    return public_job("train", 999.0, SPEC, facts, None, now_s)


def test_a_job_that_was_not_accepted_yet_is_submitted_and_has_no_progress() -> None:
    job = shown(None)

    assert (job.phase, job.held, job.progress, job.gpu_hours, job.leases) == ("submitted", None, None, 0.0, 0)


def test_progress_is_linear_from_the_last_report() -> None:
    progress = shown(RUNNING).progress

    assert progress is not None
    assert progress.samples == 400.0 + 40 * 10.0
    assert progress.fraction == 0.5
    assert progress.steps == 50.0


def test_progress_never_passes_the_declared_end() -> None:
    progress = shown(RUNNING, now_s=9000.0).progress

    assert progress is not None
    assert (progress.samples, progress.fraction) == (1600.0, 1.0)


def test_gpu_hours_count_the_present_lease() -> None:
    assert shown(RUNNING).gpu_hours == pytest.approx((3600.0 + 2 * 50.0) / 3600)


def test_a_reason_is_shown_while_it_holds() -> None:
    assert shown(RUNNING).reason is None
    assert shown(replace(RUNNING, phase="waiting", gpus=0, spot={})).reason == "an old one"
    assert shown(replace(RUNNING, phase="waiting", gpus=0, spot={}, reason="")).reason is None


@pytest.mark.parametrize("facts", [None, RUNNING], ids=["submitted", "running"])
def test_a_client_reads_what_a_service_sends(facts: JobFacts | None) -> None:
    sent = json.loads(json.dumps(asdict(shown(facts))))

    job = read_public_job({**sent, "a_field_of_the_future": 1})

    assert json.loads(json.dumps(asdict(job))) == sent


def test_a_field_that_an_older_service_does_not_send_is_named() -> None:
    sent = asdict(shown(RUNNING))
    del sent["leases"]

    with pytest.raises(FairleadError, match="leases"):
        read_public_job(sent)


def test_columns_are_fields_of_the_row() -> None:
    assert set(COLUMNS) <= set(asdict(shown(None)))
    assert list(COLUMNS)[:4] == ["id", "name", "tenant", "phase"]
