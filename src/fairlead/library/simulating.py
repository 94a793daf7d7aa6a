"""`fairlead.simulate`: one policy on one workload, and everything that can be read from the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fairlead.library.own_policies import AnyReference, load
from fairlead.library.reading import ALWAYS_READ, File, Reading, ReadingOptions, build, known, read_cluster
from fairlead.library.rules import Duration, RuleOptions, WorldRules
from fairlead.library.run_tables import job_table, summary_of, tenant_table
from fairlead.library.table import ResultTable, column_of, table_of
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.policies.parameter_text import parse_parameters
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.loop import Journal
from fairlead.studies.runs import simulate as study
from fairlead.studies.runs.simulate import Result, Setup
from fairlead.traces.formats import Trace

if TYPE_CHECKING:
    from typing import Unpack

    from fairlead.library.continuing import ContinuedRun
    from fairlead.model.cluster import Cluster
    from fairlead.rates.profile import Profile
    from fairlead.studies.fairness.journal_audit import RunAudit
    from fairlead.studies.runs.timeline import Timeline

Parameters = Mapping[str, Any] | Sequence[str]  # {"kappa": 2}, or words such as "kappa=2"
SLICES = 160  # of a timeline
MOST_TENANTS = 20  # of a timeline


class SimulationOptions(ReadingOptions, RuleOptions, total=False):
    """How a workload file is read, and the rules of the simulation."""


@overload
def simulate(
    cluster: Cluster | File,
    trace: Trace | File,
    policy: AnyReference,
    *,
    param: Parameters = (),
    seed: int | None = None,
    journal: File | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> SimulatedRun: ...


@overload
def simulate(
    *,
    from_: File,
    policy: AnyReference | None = None,
    trace: Trace | File | None = None,
    param: Parameters = (),
    seed: int | None = None,
    unknown_lasts: Duration | None = None,
    until: Duration | None = None,
    journal: File | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> ContinuedRun: ...


def simulate(
    cluster: Cluster | File | None = None,
    trace: Trace | File | None = None,
    policy: AnyReference | None = None,
    *,
    from_: File | None = None,
    param: Parameters = (),
    seed: int | None = None,
    unknown_lasts: Duration | None = None,
    until: Duration | None = None,
    journal: File | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> SimulatedRun | ContinuedRun:
    """Simulate a policy on a workload to its end.

    `cluster` and `trace` are values or files; a cluster can also be GPUs by type, such as `v100:8,k80:8`. `policy` is a
    name of `fairlead policies`, `FILE.py:NAME`, either with parameters (`fft:kappa=2`), or a policy. The options have the
    names and defaults of `fairlead simulate`; durations are seconds or text such as `30m`. `progress` receives the number
    of jobs that have ended and the number of all jobs.

    With `from_`, a journal (`run.jsonl@12h`), a snapshot or a service's state directory, the simulation continues from that
    state, with its cluster, its settings and, for a journal, its later arrivals. `policy`, `trace`, `seed` and options of
    the world then replace the recorded ones, `until` ends it earlier, and `unknown_lasts` is how much longer jobs of
    unknown length run.
    """
    if from_ is not None:
        from fairlead.library.continuing import simulate_onwards  # few runs need this, or the next two

        return simulate_onwards(
            from_,
            options,
            cluster=cluster,
            policy=policy,
            param=param,
            trace=trace,
            seed=seed,
            unknown_lasts=unknown_lasts,
            until=until,
            journal=journal,
            progress=progress,
        )
    if unknown_lasts is not None or until is not None:
        raise InputError("unknown_lasts and until need from_")
    if cluster is None or trace is None or policy is None:
        raise InputError("a simulation needs a cluster, a trace and a policy, or from_")
    return _simulate_whole(cluster, trace, policy, options, param, seed or 0, journal, progress)


def _simulate_whole(
    cluster: Cluster | File,
    trace: Trace | File,
    policy: AnyReference,
    options: SimulationOptions,
    param: Parameters,
    seed: int,
    journal: File | None,
    progress: Callable[[int, int], None] | None,
) -> SimulatedRun:
    given = known(options, Reading, WorldRules)
    reading, rules = build(Reading, given), build(WorldRules, given)
    chosen = load(policy)
    rules.refuse_task_options([chosen])
    profile = reading.profile()
    setup = rules.setup(
        read_cluster(cluster, alias=reading.alias),
        _workload(trace, reading, given, profile, seed),
        profile,
        chosen.with_parameters(param if isinstance(param, Mapping) else parse_parameters(param, chosen)),
        seed,
        reading.aliases(),
    )
    study.check_tenants(setup)
    feasible, skipped = study.without_impossible(setup, skip=rules.skip_impossible)
    if not feasible.jobs:
        raise InputError(f"{feasible.name} has no jobs to run; there is nothing to simulate")
    setup = replace(setup, trace=feasible)
    path, total = None if journal is None else Path(journal), len(feasible.jobs)
    result = study.simulate(setup, path, None if progress is None else lambda state: progress(state.ended, total))
    return SimulatedRun(setup, result, skipped, path, None if path is None else _mark(path))


def _workload(trace: Trace | File, reading: Reading, given: Mapping[str, Any], profile: Profile, seed: int) -> Trace:
    if not isinstance(trace, Trace):
        return reading.read(trace, profile, seed)
    refuse_reading(given)
    return trace


def refuse_reading(given: Mapping[str, Any]) -> None:
    """Refuse options of files for a trace that has been read."""
    for name in Reading.__dataclass_fields__:
        if name in given and name not in ALWAYS_READ:
            raise InputError(f"{name} is for files, and this trace has been read; pass it to read_trace instead")


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A finished simulation. What was not kept while it ran (stays, timeline, audit) is computed when it is asked for,
    from the journal if there is one, and otherwise by simulating again, which gives the same run.
    """

    setup: Setup
    result: Result
    skipped: int  # jobs that can never run, and were left out
    journal: Path | None
    journal_mark: tuple[int, int, int] | None = None  # of the file as this run left it

    @property
    def policy(self) -> str:
        return self.setup.policy.name

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The numbers that `fairlead simulate -o json` prints; docs/metrics.md defines each."""
        profiled = self.setup.world.profiling_s or self.result.profiling_gpu_s
        share = self.result.profiling_share if profiled else None
        return summary_of(self.policy, self.result, self.assumptions, self.skipped, share)

    @property
    def assumptions(self) -> list[str]:
        """What was assumed where the trace lacks information, and by the policy."""
        run = self.result.run
        rules = [f"{rule.name}: {rule.sentence}" for rule in run.assumed]
        return [*self.setup.trace.notes, *study.doubts(self.setup), *run.notes, *rules]

    @cached_property
    def jobs(self) -> ResultTable:
        """One row per job, in the order of arrival."""
        return job_table(f"{self.policy}: jobs", self.result)

    @cached_property
    def tenants(self) -> ResultTable:
        """One row per tenant."""
        return tenant_table(f"{self.policy}: tenants", self.summary)

    @cached_property
    def stays(self) -> ResultTable:
        """Which job held how many GPUs of which node when: one row per stay. Single tasks have no node."""
        from fairlead.studies.runs.timeline import NO_NODE

        line, stays = self._line, self._line.stays()
        ids, cluster = [spec.id for spec in self.result.state.specs], line.cluster
        nodes = [*cluster.nodes, ""]  # NO_NODE is the last
        assert NO_NODE == -1, "an index from the end"
        return ResultTable(
            f"{self.policy}: stays",
            {
                "job": column_of([ids[j] for j in stays.job.tolist()] or [""])[: len(stays.job)],
                "node": column_of([nodes[n] for n in stays.node.tolist()] or [""])[: len(stays.job)],
                "type": column_of([cluster.types[t] for t in stays.type.tolist()] or [""])[: len(stays.job)],
                "gpus": stays.gpus,
                "start_s": stays.start_s,
                "end_s": stays.end_s,
            },
            {"gpus": "GPUs", "start_s": "s", "end_s": "s"},
        )

    @cached_property
    def timeline(self) -> ResultTable:
        """The run over time, as averages over slices: GPUs in use by type, and shares and entitlements of tenants."""
        from fairlead.studies.runs.timeline import read_series

        series = read_series(self._line, self.setup.tenant_weight, SLICES, MOST_TENANTS)
        columns = {"hour": np.array(series.hour)}
        columns |= {f"utilisation_{type_}": np.array(values) for type_, values in series.utilisation.items()}
        for name, tenant in series.tenants.items():
            columns |= {f"share_{name}": np.array(tenant.share), f"entitled_{name}": np.array(tenant.entitled)}
        units = {name: "h" if name == "hour" else "part" for name in columns}
        return ResultTable(f"{self.policy}: over time", columns, units)

    @cached_property
    def audit(self) -> RunAudit:
        """Envy, sharing incentive and promises of the run, as `fairlead audit` reports them for its journal."""
        from fairlead.studies.fairness.journal_audit import AuditingJournal, Auditor

        auditor = Auditor.of(self.setup.header(), promised=self.setup.policy.promises)
        self._watch(AuditingJournal(auditor))
        return auditor.audit()

    def write_journal(self, path: File) -> Path:
        """Write every event and decision of the run to a file, which the commands of Fairlead can read."""
        study.simulate(self.setup, Path(path))
        return Path(path)

    @cached_property
    def _line(self) -> Timeline:
        from fairlead.studies.runs.timeline import Timeline

        line = Timeline(self.setup.cluster)
        self._watch(line)
        return line

    def _watch(self, watch: Journal) -> None:
        if self.journal is None or _mark(self.journal) != self.journal_mark:  # it is gone, or another run's
            study.simulate(self.setup, watch=watch)
            return
        for record in JournalReader(self.journal).records():
            watch.decision(record) if isinstance(record, Decision) else watch.event(record)

    def __repr__(self) -> str:
        trace = self.setup.trace
        return f"<Run of {self.policy} on {trace.name}: {len(trace.jobs):,} jobs>"

    def _repr_html_(self) -> str:
        """The main numbers, and the tenants if there are several."""
        names = ("jobs_finished", "makespan_s", "gpu_utilisation", "migrations_per_job")
        flat = {name: self.summary[name] for name in names}
        flat |= {
            f"{name}_{key}": self.summary[name][key] for name in ("jct_s", "wait_s", "ftf") for key in ("mean", "max")
        }
        units = {name: "s" if "_s" in name else "part" if name == "gpu_utilisation" else "" for name in flat}
        table = table_of(f"{self.policy} on {self.setup.trace.name}", [flat], units, list(flat))
        return table._repr_html_() + (self.tenants._repr_html_() if len(self.tenants) > 1 else "")


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What changes if a file is written again; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
