"""The documents of the API: what it takes and what it returns. Every response is checked against its model before it is sent.

Where the model or the store declares a row already (`PublicJob`), that is the document.
"""

from __future__ import annotations

from pydantic import BaseModel

from fairlead.model.public_job import PublicJob


class SubmittedJob(BaseModel):
    id: str


class JobPage(BaseModel):
    """`next` goes into `after` of the next request; null: that was all."""

    jobs: list[PublicJob]
    next: int | None


class JobRequest(BaseModel):
    """A request about a job, by its number; the scheduler takes it in its turn."""

    id: str
    request: int
