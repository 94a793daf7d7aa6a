"""Rates learnt from observed jobs: on the same node, on the same type, or else the profile's (Hops, SoCC 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import Estimator, TableEstimator
from fairlead.rates.evidence import (
    BOUND,
    FULL_WEIGHT,
    SPOTS,
    JobEvidence,
    Vote,
    cast,
    middle,
    seen_from,
    verdict,
    with_report,
)
from fairlead.rates.factors import RateFactors, RateSource
from fairlead.rates.profile import Profile
from fairlead.rates.spot import spot_rate
from fairlead.rates.unmeasured import WithUnmeasured


class Sensing(StrEnum):
    """What is learnt while jobs run. Each value includes the ones before it."""

    TABLE = "table"  # nothing
    TYPES = "types"  # this job on this type
    SERVERS = "servers"  # this job on this node: the paper's three layers
    THREE_LAYER = "three-layer"  # and how fast a node is for all jobs


class LearntLayer(StrEnum):
    """The layer that provides the rate of a job on a node."""

    JOB_ON_NODE = "this job on this node"
    NODE = "this node for other jobs"
    JOB_ON_TYPE = "this job on this type"
    PROFILE = "profile"


@runtime_checkable
class Learns(Protocol):
    """An estimator that learns from the observed rates of jobs. What it has learnt is part of the folded state."""

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None: ...

    def end(self, job: int) -> None:
        """Forget what only mattered to this job, which is over."""

    def relative(self, jobs: IntArray, expected: FloatArray | None = None) -> FloatArray: ...

    def spread(self, jobs: IntArray, expected: FloatArray | None = None) -> FloatArray: ...

    def predict(self, job: int, model: str, spot: Spot, expected: FloatArray | None = None) -> float: ...

    def factors(self, job: int, model: str, gpus: int) -> RateFactors:
        """What is known about the job's rates by type, from its own observations."""

    def renumber(self, position: Mapping[int, int]) -> None:
        """Jobs have new positions; those without one have ended and are forgotten."""

    def learnt(self) -> Any:
        """Everything that it has learnt, as JSON values."""

    def learn_again(self, learnt: Any) -> None: ...

    def copy(self) -> Learns:
        """An independent copy that has learnt the same."""


class ThreeLayer:
    """Observed rates relative to the table's; the first layer that has observations counts:

    1    this job on this node: the median of its newest reports
    1.5  this node, for any job: the median over jobs (with `Sensing.THREE_LAYER`; the paper's tables are by job only)
    2    this job on this type: the median over its nodes, each relative to the node's factor where that is known
    3    the profile: a row, or the iteration-time formula

    A node's factor must not be moved by jobs whose expected speed is only assumed. With x_jn the logarithm of the job's
    observed / expected speed on node n, f_n that of the node's factor and t its type, the vote of job j about node n is

        x_jn - median( x_jm - f_m for the job's other nodes m of type t, and 0 if the job's scale is trusted )

    A scale is trusted if the rate was profiled and the job runs at a quarter to four times of it. A job without a trusted
    scale that was on one node only has no vote. The factor is the median of the votes of the newest jobs, within bounds,
    and there is none before two jobs have voted (`rates/evidence.py`). What a job reported is forgotten when it ends;
    its votes remain until newer jobs replace them.

    On several nodes the slowest sets the pace, and it cannot be observed which node that was. Observations on several
    nodes are therefore kept separately: as the ratio of the job's rate to that of its slowest node, as estimated now,
    when the job is spread over nodes of this type (or of other types, if there is no observation on this one). If a
    spot mixes types, the observation counts for each of them.

    Departs: histories are ratios to the profile, combined over all numbers of GPUs, and of nodes above one; the paper
    keeps a table for each number. The paper keeps means, we keep medians of the newest reports.
    """

    def __init__(self, table: Estimator, cluster: Cluster, sensing: Sensing = Sensing.THREE_LAYER) -> None:
        self._table = table
        self._cluster = cluster
        self._sensing = sensing
        self._node_type: list[int] = cluster.node_type.tolist()
        self._jobs: dict[int, JobEvidence] = {}
        self._votes: dict[int, dict[int, Vote]] = {}  # node -> job
        self._factor: dict[int, float] = {}  # node -> logarithm; follows from the votes

    def best(self, model: str, gpus: int) -> FloatArray:
        return self._table.best(model, gpus)

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float:
        return self._table.at(model, type_, gpus, nodes)

    def type_speed(self) -> FloatArray:
        return self._table.type_speed()

    def sources(self, model: str, gpus: int) -> tuple[RateSource, ...]:
        return self._table.sources(model, gpus)

    def knows(self, model: str) -> bool:
        return self._table.knows(model)

    def samples_per_step(self, model: str, gpus: int) -> float:
        return self._table.samples_per_step(model, gpus)

    def restart_s(self, model: str) -> float:
        return self._table.restart_s(model)

    def for_cluster(self, cluster: Cluster) -> ThreeLayer:
        """The same learner for a changed cluster; it forgets nodes that came back with GPUs of another type."""
        again = ThreeLayer(self._table.for_cluster(cluster), cluster, self._sensing)
        again._take_over(self)
        now = cluster.node_type.tolist()
        again._forget({node for node, type_ in enumerate(self._node_type) if now[node] != type_})
        return again

    def _forget(self, nodes: set[int]) -> None:
        for node in nodes:
            self._votes.pop(node, None)
            self._factor.pop(node, None)
        for evidence in self._jobs.values():
            if self._by_node:
                evidence.at = {node: window for node, window in evidence.at.items() if node not in nodes}
            on_them = [spot for spot in evidence.spread if nodes & {node for node, _ in spot}]
            for spot in on_them:
                del evidence.spread[spot]
        self._jobs = {job: evidence for job, evidence in self._jobs.items() if not evidence.is_empty}

    def end(self, job: int) -> None:
        """Forget the reports of a job that is over; its votes about nodes remain."""
        self._jobs.pop(job, None)

    def renumber(self, position: Mapping[int, int]) -> None:
        """Jobs have new positions. Votes of forgotten jobs remain, under negative numbers, until newer ones replace them."""
        self._jobs = {position[job]: evidence for job, evidence in self._jobs.items()}
        self._votes = {node: _renumbered(votes, position) for node, votes in self._votes.items()}

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None:
        """Learn that the job ran at `rate` samples per second on this spot."""
        expected = self._expected(model, spot, np.ones(len(self._node_type)))
        if expected <= 0 or rate <= 0:
            return
        ratio = math.log(rate / expected)
        evidence = self._jobs.setdefault(job, JobEvidence(model))
        types = {self._node_type[node] for node, _ in spot}
        if len(types) == 1:
            t = types.pop()
            evidence.reports[t] = evidence.reports.get(t, 0) + 1
        if len(spot) > 1:
            evidence.spread[spot] = with_report(evidence.spread.pop(spot, None), ratio)
            if len(evidence.spread) > SPOTS:
                del evidence.spread[next(iter(evidence.spread))]
            return
        node, gpus = spot[0]
        place = node if self._by_node else self._node_type[node]
        evidence.at[place] = with_report(evidence.at.get(place), ratio)
        if self._sensing is Sensing.THREE_LAYER:
            self._vote(job, evidence, node, gpus)

    def _vote(self, job: int, evidence: JobEvidence, node: int, gpus: int) -> None:
        t, seen = self._node_type[node], evidence.at[node].vote
        others = self._beyond_nodes(evidence, without=node).get(t, [])
        profiled = self._table.sources(evidence.model, gpus)[t] is RateSource.PROFILED
        if profiled and abs(seen.value) <= BOUND:
            others.append(Vote(0.0, FULL_WEIGHT))
        if others:
            votes = self._votes.setdefault(node, {})
            cast(votes, job, Vote(seen.value - middle(others), seen.reports))
            self._judge(node)

    def _judge(self, node: int) -> None:
        factor = verdict(self._votes[node])
        if factor is not None:
            self._factor[node] = factor

    def _beyond_nodes(self, evidence: JobEvidence, without: int | None = None) -> dict[int, list[Vote]]:
        """By type: the job's speed at its places relative to other jobs there."""
        by_type: dict[int, list[Vote]] = {}
        for place, seen in evidence.at.items():
            if place != without:
                value = seen.value - self._factor.get(place, 0.0)  # there are no factors where places are types
                by_type.setdefault(self._type_of(place), []).append(Vote(value, len(seen.window)))
        return by_type

    def _own(self, evidence: JobEvidence) -> dict[int, float]:
        """By type: how much faster this job is than expected, apart from the nodes that it was on.

        A scale that is only assumed is as wrong on the types on which the job has not run, so it is corrected there too.
        """
        own = {t: middle(votes) for t, votes in self._beyond_nodes(evidence).items()}
        sources = self._table.sources(evidence.model, 1)
        if RateSource.ASSUMED not in sources or len(own) == len(sources):
            return own
        seen = [Vote(value, 1) for value in own.values()] or [spread.vote for spread in evidence.spread.values()]
        assumed = [t for t, source in enumerate(sources) if source is RateSource.ASSUMED]
        return {**dict.fromkeys(assumed, middle(seen)), **own}

    def relative(self, jobs: IntArray, expected: FloatArray | None = None) -> FloatArray:
        """j,n  expected rate on a node / the profile's rate.

        `expected` (j,t) is used where the job itself was not observed on a type, if something better than 1 is known.
        """
        by_type = np.zeros((len(jobs), len(self._cluster.types))) if expected is None else np.log(expected)  # j,t
        known = [(row, self._jobs[job]) for row, job in enumerate(jobs.tolist()) if job in self._jobs]
        for row, evidence in known:
            own = self._own(evidence)
            if expected is not None:
                own = {t: own[t] for t in {self._type_of(place) for place in evidence.at}}
            for t, value in own.items():
                by_type[row, t] = value
        ratio = by_type[:, self._cluster.node_type] + self._node_factors()
        for row, evidence in known if self._by_node else ():
            ratio[row, list(evidence.at)] = [seen.value for seen in evidence.at.values()]
        return np.asarray(np.exp(ratio))

    def _node_factors(self) -> FloatArray:
        """n  logarithms."""
        factor = np.zeros(len(self._node_type))
        for node, value in self._factor.items():
            factor[node] = value
        return factor

    def spread(self, jobs: IntArray, expected: FloatArray | None = None) -> FloatArray:
        """j,t  expected rate over several nodes / the profile's rate at the speed of the slowest node, by `relative`."""
        ratio = np.ones((len(jobs), len(self._cluster.types)))
        rows = [row for row, job in enumerate(jobs.tolist()) if job in self._jobs and self._jobs[job].spread]
        relative = self.relative(jobs[rows], None if expected is None else expected[rows])
        for row, speeds in zip(rows, relative, strict=True):
            ratio[row] = self._spread_of(self._jobs[int(jobs[row])], speeds)
        return ratio

    def _spread_of(self, evidence: JobEvidence, speeds: FloatArray) -> list[float]:
        """t  for a job that expects these speeds (n) on single nodes."""
        alike, by_type, votes = np.ones(len(self._node_type)), dict[int, list[Vote]](), list[Vote]()
        for spot, seen in evidence.spread.items():
            slowest = self._expected(evidence.model, spot, speeds) / self._expected(evidence.model, spot, alike)
            vote = Vote(seen.value - math.log(slowest), len(seen.window))
            votes.append(vote)
            for t in {self._node_type[node] for node, _ in spot}:
                by_type.setdefault(t, []).append(vote)
        return [math.exp(middle(by_type.get(t, votes))) for t in range(len(self._cluster.types))]

    def learnt(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "jobs": [
                [
                    job,
                    one.model,
                    *([[place, seen.window] for place, seen in table.items()] for table in (one.at, one.spread)),
                    list(one.reports.items()),
                ]
                for job, one in self._jobs.items()
            ],
            "votes": [[node, job, *vote] for node, votes in self._votes.items() for job, vote in votes.items()],
        }

    def learn_again(self, learnt: Any) -> None:
        """Continue from what was learnt. What an earlier version of Fairlead had learnt is learnt again."""
        self._jobs, self._votes, self._factor = {}, {}, {}
        if learnt.get("format") != _FORMAT:
            return
        for job, model, at, spread, reports in learnt["jobs"]:
            places = {place: seen_from(tuple(window)) for place, window in at}
            spots = {tuple((node, gpus) for node, gpus in spot): seen_from(tuple(window)) for spot, window in spread}
            self._jobs[job] = JobEvidence(model, places, spots, dict(reports))
        for node, job, value, reports in learnt["votes"]:
            self._votes.setdefault(node, {})[job] = Vote(value, reports)
        for node in self._votes:
            self._judge(node)

    def copy(self) -> ThreeLayer:
        other = ThreeLayer(self._table, self._cluster, self._sensing)
        other._take_over(self)
        return other

    def _take_over(self, other: ThreeLayer) -> None:
        self._jobs = {job: evidence.copy() for job, evidence in other._jobs.items()}
        self._votes = {node: dict(votes) for node, votes in other._votes.items()}
        self._factor = dict(other._factor)

    def predict(self, job: int, model: str, spot: Spot, expected: FloatArray | None = None) -> float:
        """Expected samples per second on this spot; `expected` (t) as in `relative`."""
        row, by_type = np.array([job]), None if expected is None else expected[np.newaxis]
        spread = self.spread(row, by_type)[0] if len(spot) > 1 else None
        speeds = self.relative(row, by_type)[0]
        return spot_rate(partial(self._table.at, model), spot, self._node_type, speeds, spread)

    def factors(self, job: int, model: str, gpus: int) -> RateFactors:
        """What the job's reports say about its rate on the nodes of each type; each report halves the doubt."""
        types = len(self._cluster.types)
        table, factor, reports = self._table.sources(model, gpus), np.ones(types), np.zeros(types)
        evidence = self._jobs.get(job)
        if evidence is not None:
            for t, votes in self._by_type(evidence).items():
                factor[t] = math.exp(middle(votes))
                reports[t] = evidence.reports[t]
        return RateFactors(
            factor=factor,
            confidence=1.0 - 0.5**reports,
            source=tuple(RateSource.MEASURED if n else source for n, source in zip(reports, table, strict=True)),
        )

    def _by_type(self, evidence: JobEvidence) -> dict[int, list[Vote]]:
        """The job's speeds on each type, nodes included.

        They are not corrected by the nodes' factors. Where one tenant's jobs are alone on a node, these would explain wrong
        speeds of its model by a slow node, and what the tenant declared would stay believed.
        """
        by_type: dict[int, list[Vote]] = {}
        for place, seen in evidence.at.items():
            by_type.setdefault(self._type_of(place), []).append(seen.vote)
        for spot, seen in evidence.spread.items():
            on = {self._node_type[node] for node, _ in spot}
            if len(on) == 1:
                by_type.setdefault(on.pop(), []).append(seen.vote)
        return by_type

    def layer(self, job: int, node: int) -> LearntLayer:
        """The layer that provides the rate of the job on this node alone."""
        evidence = self._jobs.get(job)
        if evidence is not None and self._by_node and node in evidence.at:
            return LearntLayer.JOB_ON_NODE
        if node in self._factor:
            return LearntLayer.NODE
        own = {} if evidence is None else self._own(evidence)
        return LearntLayer.JOB_ON_TYPE if self._node_type[node] in own else LearntLayer.PROFILE

    def factor_of(self, node: int) -> float | None:
        return math.exp(self._factor[node]) if node in self._factor else None

    def jobs_seen_on(self, node: int) -> int:
        """Jobs whose votes about the node count."""
        return len(self._votes.get(node, {}))

    @property
    def _by_node(self) -> bool:
        return self._sensing is not Sensing.TYPES

    def _type_of(self, place: int) -> int:
        return self._node_type[place] if self._by_node else place

    def _expected(self, model: str, spot: Spot, relative: FloatArray) -> float:
        """The table's rate if every node (n) were `relative` times as fast as its type."""
        return spot_rate(partial(self._table.at, model), spot, self._node_type, relative)


def _renumbered(votes: dict[int, Vote], position: Mapping[int, int]) -> dict[int, Vote]:
    """The votes in the same order, oldest first."""
    past = count(-1, -1)
    return {position[job] if job in position else next(past): vote for job, vote in votes.items()}


_FORMAT = 2  # of what was learnt; the first had means instead of reports


def build_estimator(
    profile: Profile,
    cluster: Cluster,
    restart_s: float | None,
    sensing: Sensing = Sensing.TABLE,
    *,
    unmeasured: bool = False,
    all_new: bool = False,
) -> Estimator:
    """The estimator for a sensing mode. `unmeasured` accepts models that are not in the profile, for live clusters.

    With `all_new` the speeds in the profile are not known to the scheduler.
    """
    known = TableEstimator(profile, cluster, restart_s=restart_s)
    table = WithUnmeasured(known, all_new=all_new) if unmeasured or all_new else known
    return table if sensing is Sensing.TABLE else ThreeLayer(table, cluster, sensing)
