"""Workloads from files of any known format, and to our own: one registry, one reading loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import Profile
from fairlead.traces.assign import Assigner
from fairlead.traces.files import did_you_mean, open_text, sha256_of
from fairlead.traces.importers import gavel, own, philly_csv
from fairlead.traces.importers.rows import Format, LeftOut, Options
from fairlead.traces.importers.times import format_time

# In the order in which they are tried on a file that nobody names the format of.
FORMATS: tuple[Format, ...] = (own.FORMAT, philly_csv.FORMAT, gavel.FORMAT)
OTHER_NAMES = {"shockwave": "gavel"}
_HEAD_CHARS = 8192


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload, sorted by (arrival, id). `sha256` is that of the file it came from, empty for a generated one."""

    jobs: tuple[JobSpec, ...]
    name: str
    format: str
    sha256: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """What a reading loop has seen besides jobs."""

    bad: int = 0
    first_bad: str = ""
    left_out: Counter[str] = field(default_factory=Counter)

    def notes(self) -> list[str]:
        notes = [f"left out: {count} records, {reason}" for reason, count in sorted(self.left_out.items())]
        if self.bad:
            notes.append(f"skipped {self.bad} bad lines, the first: {self.first_bad}")
        return notes


def read_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002  the word that users know
    *,
    profile: Profile | None = None,
    seed: int = 0,
    tenants: int | None = None,
    reference: str = "v100",
    timezone: str = "UTC",
    skip_bad_lines: bool = False,
) -> Trace:
    """A workload from a file.

    Where the file has no models, one of `profile` is chosen by `seed`, and steps are the job's duration at the model's
    rate on the `reference` type. Where it has no tenants, all jobs belong to one, or to one of `tenants` by `seed`.
    """
    options = Options(profile, seed, tenants, reference, timezone, skip_bad_lines)
    known = find_format(format) if format else detect_format(path)
    assigner, tally = Assigner(options), Tally()
    jobs = sorted(read_jobs(path, known, assigner, tally), key=_arrival_and_id)
    notes = [*known.notes, *assigner.used, *tally.notes()]
    name: str | None = None
    if known is own.FORMAT:
        name, said = own.read_head(_head(path))
        notes = [*said, *notes]
    if known.absolute_times and jobs:
        origin_s = jobs[0].arrival_s
        jobs = [replace(job, arrival_s=job.arrival_s - origin_s) for job in jobs]
        notes.append(f"times count from {format_time(origin_s)}, the first submission")
    return Trace(tuple(jobs), name or Path(path).stem, known.name, sha256_of(path), tuple(notes))


def write_trace(trace: Trace, path: str | Path) -> None:
    """In our own format; reads back as the same jobs."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("\n".join(own.head_lines(trace.name, trace.notes)) + "\n")
        for job in trace.jobs:
            before, after = own.line_parts(job)
            file.write(f"{before}{job.arrival_s!r}{after}")


def find_format(name: str) -> Format:
    wanted = OTHER_NAMES.get(name, name)
    for known in FORMATS:
        if known.name == wanted:
            return known
    names = [known.name for known in FORMATS] + list(OTHER_NAMES)
    raise InputError(f'trace format "{name}" is not known; {did_you_mean(name, names)}')


def detect_format(path: str | Path) -> Format:
    head = _head(path)
    for known in FORMATS:
        if known.detect(head):
            return known
    names = ", ".join(known.name for known in FORMATS)
    raise InputError(f"is in no format that we know ({names}); name it with --trace-format", path=str(path))


def read_jobs(path: str | Path, known: Format, assigner: Assigner, tally: Tally) -> Iterator[JobSpec]:
    """The jobs of a file in file order, at the times that the file gives; what else it holds goes to `tally`."""
    seen: set[str] = set()
    with open_text(path) as file:
        try:
            for line, record in known.records(file, assigner.options):
                try:
                    job = _read_one(line, record, known, assigner, tally, seen)
                except InputError as error:
                    placed = error.at(str(path), line)
                    if not assigner.options.skip_bad_lines:
                        raise placed from None
                    tally.bad += 1
                    tally.first_bad = tally.first_bad or str(placed)
                    continue
                if job is not None:
                    yield job
        except InputError as error:
            raise error if error.path else error.at(str(path), error.line) from None


def _read_one(
    line: int, record: object, known: Format, assigner: Assigner, tally: Tally, seen: set[str]
) -> JobSpec | None:
    if isinstance(record, InputError):
        raise record
    row = known.row(line, record, assigner.options)
    if isinstance(row, LeftOut):
        tally.left_out[row.reason] += 1
        return None
    job = assigner.job(row)
    if not known.numbered:
        if job.id in seen:
            raise InputError(f'job id "{job.id}" stands twice; ids must differ')
        seen.add(job.id)
    return job


def _arrival_and_id(job: JobSpec) -> tuple[float, str]:
    return job.arrival_s, job.id


def _head(path: str | Path) -> str:
    with open_text(path) as file:
        return file.read(_HEAD_CHARS)
