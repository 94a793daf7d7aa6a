"""Reads workloads of any known format and writes Fairlead's own: the registry of formats and the reading loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.past import Past
from fairlead.model.words import counted, did_you_mean
from fairlead.rates.profile import Profile
from fairlead.traces.assign import Assigner
from fairlead.traces.files import create_text, open_text, sha256_of
from fairlead.traces.importers import alibaba, gavel, logs, own, philly_csv, philly_log, pollux, sacct
from fairlead.traces.importers.rows import LeftOut, ModelPatterns, Options, TraceFormat
from fairlead.traces.importers.times import format_time
from fairlead.traces.sorting import Line, sort_lines

# In the order in which they are tried on a file without a stated format.
FORMATS: tuple[TraceFormat, ...] = (
    own.FORMAT,
    philly_csv.FORMAT,
    philly_log.FORMAT,
    logs.HELIOS,
    logs.ACME,
    alibaba.OPENB,
    alibaba.PAI,
    pollux.FORMAT,
    sacct.TEXT,
    sacct.JSON,
    gavel.FORMAT,
)
OTHER_NAMES = {"shockwave": "gavel", "sia": "pollux", "philly": "philly-csv"}
_HEAD_CHARS = 8192


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload, sorted by (arrival, id). `sha256` is of its file, and empty for a generated one."""

    jobs: tuple[JobSpec, ...]
    name: str
    format: str
    sha256: str = ""
    notes: tuple[str, ...] = ()
    past: Mapping[str, Past] = field(default_factory=dict)  # by job, if another scheduler ran them
    # By job: which of `assign.FILLABLE` the file lacks, so that the seed or a default decided them.
    filled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of `convert_trace`; `notes` list what was assumed and left out."""

    format: str
    jobs: int
    notes: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Counts of a reading loop: jobs, bad lines, and records that were left out."""

    jobs: int = 0
    bad: int = 0
    first_bad: str = ""
    left_out: Counter[str] = field(default_factory=Counter)

    def notes(self) -> list[str]:
        notes = [f"left out: {counted(count, 'record')}, {reason}" for reason, count in sorted(self.left_out.items())]
        if self.bad:
            notes.append(f"skipped {counted(self.bad, 'bad line')}, the first: {self.first_bad}")
        return notes


def read_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002  the word that users know
    *,
    profile: Profile | None = None,
    seed: int = 0,
    tenants: int | None = None,
    reference: str | None = None,
    timezone: str = "UTC",
    skip_bad_lines: bool = False,
    completed_only: bool = False,
    pin_types: bool = False,
    aliases: Mapping[str, str] | None = None,
    models: ModelPatterns = (),
) -> Trace:
    """A workload from a file.

    If the file has no models, one of `profile` is chosen by `seed`, and steps are the job's duration times the model's
    rate on the `reference` type. If it has no tenants, all jobs belong to one, or to one of `tenants` by `seed`.
    See `Options` for the others.
    """
    options = Options(
        profile, seed, tenants, reference, timezone, skip_bad_lines, completed_only, pin_types, aliases or {}, models
    )
    known = find_format(format) if format else detect_format(path)
    assigner, tally = Assigner(options), Tally()
    jobs = sorted(read_jobs(path, known, assigner, tally), key=lambda job: (job.arrival_s, job.id))
    origin_s = jobs[0].arrival_s if known.absolute_times and jobs else 0.0
    if origin_s:
        jobs = [replace(job, arrival_s=job.arrival_s - origin_s) for job in jobs]
    name, notes = _describe(path, known, assigner, tally, origin_s)
    return Trace(tuple(jobs), name, known.name, sha256_of(path), notes, assigner.past, assigner.filled)


def convert_trace(
    source: str | Path,
    target: str | Path,
    format: str | None = None,  # noqa: A002
    options: Options | None = None,
) -> Conversion:
    """Write the file `source` as `target` in our own format, without keeping all jobs in memory.

    Nothing is written unless the whole source was read.
    """
    if Path(target).exists() and Path(source).exists() and Path(source).samefile(target):
        raise InputError("source and target are the same file; choose another target", path=str(target))
    known = find_format(format) if format else detect_format(source)
    assigner, tally = Assigner(options or Options(), remembers=False), Tally()
    lines = sort_lines(_lines(read_jobs(source, known, assigner, tally), assigner.past))
    first = next(lines, None)
    origin_s = first[0] if known.absolute_times and first else 0.0
    name, notes = _describe(source, known, assigner, tally, origin_s)
    with create_text(target) as file:
        file.write("\n".join(own.head_lines(name, notes, past=assigner.tells_past)) + "\n")
        if first is not None:
            file.write(f"{first[2]}{first[0] - origin_s!r}{first[3]}")
        file.writelines(f"{before}{arrival_s - origin_s!r}{after}" for arrival_s, _, before, after in lines)
    return Conversion(known.name, tally.jobs, notes)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace in our own format; it reads back as the same jobs."""
    with create_text(path) as file:
        file.write("\n".join(own.head_lines(trace.name, trace.notes, past=bool(trace.past))) + "\n")
        past = {job.id: trace.past.get(job.id, Past()) for job in trace.jobs} if trace.past else {}
        lines = _lines(iter(trace.jobs), past)
        file.writelines(f"{before}{arrival_s!r}{after}" for arrival_s, _, before, after in lines)


def find_format(name: str) -> TraceFormat:
    own_name = OTHER_NAMES.get(name, name)
    for known in FORMATS:
        if known.name == own_name:
            return known
    names = [known.name for known in FORMATS] + list(OTHER_NAMES)
    raise InputError(f'trace format "{name}" is not known; {did_you_mean(name, names)}')


def detect_format(path: str | Path) -> TraceFormat:
    head = _head(path)
    for known in FORMATS:
        if known.detect(head):
            return known
    first = head.partition("\n")[0]
    if not head.strip():
        raise InputError("is empty; wanted a trace", path=str(path))
    if first.count("|") > 1:
        raise InputError(
            "looks like sacct without its line of column names; write it with --parsable2 and without --noheader",
            path=str(path),
        )
    if "JobID" in first.split(","):
        raise InputError(
            "looks like sacct with commas, which AllocTRES contains too; write it with --parsable2, which separates "
            "columns by |",
            path=str(path),
        )
    names = ", ".join(known.name for known in FORMATS)
    raise InputError(f"is in no known format ({names}); name it with --trace-format", path=str(path))


def read_jobs(path: str | Path, known: TraceFormat, assigner: Assigner, tally: Tally) -> Iterator[JobSpec]:
    """The jobs of a file in file order, with the times of the file; everything else is counted in `tally`."""
    ids: set[str] = set()
    with open_text(path) as file:
        try:
            for line, record in known.records(file, assigner.options):
                try:
                    job = _read_one(line, record, known, assigner, tally, ids)
                except InputError as error:
                    placed = error.at(str(path), line)
                    if not assigner.options.skip_bad_lines:
                        raise placed from None
                    tally.bad += 1
                    tally.first_bad = tally.first_bad or str(placed)
                    continue
                if job is not None:
                    tally.jobs += 1
                    yield job
        except InputError as error:
            raise error if error.path else error.at(str(path), error.line) from None


def _read_one(
    line: int, record: object, known: TraceFormat, assigner: Assigner, tally: Tally, ids: set[str]
) -> JobSpec | None:
    if isinstance(record, InputError):
        raise record
    row = known.row(line, record, assigner.options)
    if isinstance(row, LeftOut):
        tally.left_out[row.reason] += 1
        return None
    job = assigner.job(row)
    if not known.numbered:
        if job.id in ids:
            raise InputError(f'job id "{job.id}" appears twice; ids must differ')
        ids.add(job.id)
    return job


def _lines(jobs: Iterator[JobSpec], past: MutableMapping[str, Past]) -> Iterator[Line]:
    """The lines of the jobs. What happened to a job is removed from `past`, so that not all of it is kept."""
    for job in jobs:
        before, after = own.line_parts(job, past.pop(job.id, None))
        yield job.arrival_s, job.id, before, after


def _describe(
    path: str | Path, known: TraceFormat, assigner: Assigner, tally: Tally, origin_s: float
) -> tuple[str, tuple[str, ...]]:
    """The name of the trace and all assumptions about it."""
    name, notes = own.read_head(_head(path)) if known is own.FORMAT else (None, ())
    source = () if known is own.FORMAT else (f"from {Path(path).name}, format {known.name}",)
    origin = (f"times count from {format_time(origin_s)}, the first submission",) if origin_s else ()
    return name or Path(path).stem, (*notes, *source, *known.notes, *assigner.notes(), *tally.notes(), *origin)


def _head(path: str | Path) -> str:
    with open_text(path) as file:
        return file.read(_HEAD_CHARS)
