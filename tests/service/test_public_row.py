"""A job's public row is declared once: the table, the API and the command line follow the declaration."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.jobs import JOB_COLUMNS, job_row
from fairlead.model.public_job import COLUMNS, HeldGpus, JobFacts, JobProgress, PublicJob
from fairlead.service.api.app import build_app
from fairlead.service.store.database import create, open_reader, open_writer
from fairlead.service.store.log import UNDECIDED
from fairlead.service.store.tables import EVENTS
from serving import World, world


def names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def test_the_table_of_jobs_has_the_columns_that_are_declared(tmp_path: Path) -> None:
    create(tmp_path / "events.db", EVENTS)
    with closing(open_reader(tmp_path / "events.db")) as connection:
        columns = [row["name"] for row in connection.execute("PRAGMA table_info(jobs)")]

    assert sorted(columns) == sorted(names(JobFacts))


@pytest.mark.parametrize("kind", [PublicJob, HeldGpus, JobProgress])
def test_the_openapi_schema_has_every_field_with_its_sentence(tmp_path: Path, kind: Any) -> None:
    with world(tmp_path) as here:
        schema = build_app(here.service).openapi()["components"]["schemas"][kind.__name__]

    assert list(schema["properties"]) == names(kind)
    assert schema["required"] == names(kind)
    assert all(described(part) for part in schema["properties"].values())


def described(part: dict[str, Any]) -> bool:
    return str(part.get("description")).endswith(".")


def test_a_job_is_sent_with_every_field_and_shown_in_every_column(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        id_ = here.submit()
        here.take()
        one = here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()
        page = here.client.get("/v1/jobs", headers=here.admin).json()

    assert list(one) == names(PublicJob)
    assert [list(job) for job in page["jobs"]] == [names(PublicJob)]
    assert len(job_row(one)) == len(JOB_COLUMNS) == len(COLUMNS)
    assert job_row(one)[:5] == [id_, "train", "default", "waiting", UNDECIDED]


@pytest.mark.parametrize("path", ["/v1/jobs/{id}", "/v1/jobs"])
def test_a_row_that_breaks_the_declaration_is_not_sent(tmp_path: Path, path: str) -> None:
    with world(tmp_path) as here:
        id_ = here.submit()
        here.take()
        _set_phase(here, "asleep")

        answer = here.client.get(path.format(id=id_), headers=here.admin)

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "asleep" not in answer.text


def _set_phase(here: World, phase: str) -> None:
    with closing(open_writer(here.service.directory.events, EVENTS)) as connection:
        connection.execute("UPDATE jobs SET phase = ?", (phase,))
