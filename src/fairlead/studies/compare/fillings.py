"""Whether conclusions about policies depend on how the gaps of a trace were filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fairlead.model.words import counted
from fairlead.numerics.metrics import SAME
from fairlead.studies.compare.answer import ComparisonAnswer, Metric
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.compare.table import METRICS, value_of
from fairlead.traces.assign import FILLABLE
from fairlead.traces.formats import Trace

TIE = "a tie"
BY_REFERENCE = "the GPU type of the duration"  # which --reference states, and no seed changes
_WORDS = dict(zip(FILLABLE, ("the model", "the tenant", BY_REFERENCE), strict=True))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Which policy is best in a metric, and with how many of the ways to fill in a trace."""

    metric: str
    label: str
    best: str  # most often; the first of equals in the order of the request, and TIE if no policy ever is
    holds: int
    ways: int  # in which every policy finished all jobs
    otherwise: Mapping[str, int]  # best in the other ways
    order: tuple[str, ...]  # of all policies, the best first: the most frequent one
    order_holds: int

    @property
    def sentence(self) -> str:
        others = ", ".join(f"{name} in {ways}" for name, ways in self.otherwise.items())
        held = f"{self.best} is best in {self.holds} of {counted(self.ways, 'way')} to fill in"
        return f"{self.label}: {held}{f' ({others})' if others else ''}"


def conclusions(answers: Sequence[ComparisonAnswer], metrics: Iterable[Metric] = METRICS) -> list[Conclusion]:
    """One for each metric that has a best value. Each answer and seed is a way to fill in the same trace."""
    policies = answers[0].policy_names
    ways = [
        {run.policy: run for run in answer.runs if run.seed == seed and run.load == load and run.is_whole}
        for answer in answers
        for load in answer.loads
        for seed in answer.seeds
    ]
    return [_conclusion(metric, policies, ways) for metric in metrics if metric.better]


def _conclusion(metric: Metric, policies: Sequence[str], ways: Sequence[Mapping[str, RunRecord]]) -> Conclusion:
    sign = 1.0 if metric.better == "lower" else -1.0
    first, orders = Counter[str](), Counter[tuple[str, ...]]()
    for runs in ways:
        values = {name: value_of(runs[name], metric) for name in policies if name in runs}
        known = {name: sign * value for name, value in values.items() if value is not None}
        if len(known) < len(policies):
            continue
        order = tuple(sorted(policies, key=known.__getitem__))
        tied = len(order) > 1 and known[order[1]] - known[order[0]] <= SAME * abs(known[order[0]])
        first[TIE if tied else order[0]] += 1
        orders[order] += 1
    best = max(policies, key=first.__getitem__) if first.keys() - {TIE} else TIE
    otherwise = {name: count for name, count in first.most_common() if name != best}
    usual, holds = orders.most_common(1)[0] if orders else ((), 0)
    return Conclusion(metric.name, metric.label, best, first[best], first.total(), otherwise, usual, holds)


def filled_in(trace: Trace) -> list[str]:
    """What the trace lacks, in words: `the model of 3 of 8 jobs`."""
    facts = Counter(chain.from_iterable(trace.filled.get(job.id, ()) for job in trace.jobs))
    return [
        f"{_WORDS[fact]} of {facts[fact]:,} of {counted(len(trace.jobs), 'job')}" for fact in FILLABLE if facts[fact]
    ]
