"""What happened to a job of a trace before anyone simulated it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Past:
    """How another scheduler ran a job: when, for how long, and where; and what the job was called there."""

    waited_s: float | None = None  # from its submission to its start
    ran_s: float | None = None
    hosts: tuple[str, ...] = ()
    name: str = ""
    partition: str = ""
    model_from: str = ""  # `name`: a pattern matched its name; `drawn`: by a hash; empty: the file names the model
