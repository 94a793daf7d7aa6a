"""`fairlead.advise`: which policy suits a workload, why, and what it would cost if the workload turned out otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fairlead.library.comparing import (
    ALL,
    compare,
    generator_of,
    generator_options,
    policies_of,
    seeds_of,
)
from fairlead.library.comparison import PolicyComparison
from fairlead.library.own_policies import AnyReference
from fairlead.library.reading import File, Reading, build, read_cluster
from fairlead.library.rules import Duration, Numbers
from fairlead.library.simulating import SimulationOptions
from fairlead.library.table import ResultTable, table_of
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.words import choose, counted, parse_pairs
from fairlead.policies.policy import Policy, TaskPolicy
from fairlead.studies.compare.advice import ASPECTS, PolicyScore, Scores, scores_of
from fairlead.studies.compare.workloads import LOAD
from fairlead.traces.formats import Trace
from fairlead.traces.stats import trace_stats

if TYPE_CHECKING:
    from typing import Unpack

ALIKE = 0.01  # relative difference of scores that decides nothing
CONTENDERS = 5  # that are compared again if things turn out otherwise
BUSIER = 1.3  # times the load
SURPRISES: Mapping[str, Mapping[str, Any]] = {
    "lengths that are declared are wrong by up to a half": {"length_error": 0.5},
    "servers of a type differ in speed, from 0.75 to 1.05": {"server_factors": "0.75:1.05"},
    "every restart takes five minutes": {"restart_cost": "5m"},
}


@dataclass(frozen=True, slots=True)
class Surprise:
    """A world that is not as expected, and what the recommended policy costs there."""

    what: str
    best: str | None  # of the policies that were compared again; None if none finished every job
    behind: float | None  # score of the recommended policy / score of the best; None if it has no score there
    why: str = ""  # it has none


@dataclass(frozen=True, eq=False)
class Advice:
    """The recommended policy, with the scores of all and what speaks against it."""

    comparison: PolicyComparison
    scores: Scores
    weights: Mapping[str, float]
    elsewhere: Mapping[str, Scores] = field(default_factory=dict)  # by what is not as expected

    @property
    def recommended(self) -> PolicyScore:
        """The best one; of those that are as good, one that knows less, promises more, and suffers less from surprises."""
        alike = self.alike
        equal = [one for one in alike if _merit(one) == _merit(alike[0])]
        return min(equal, key=lambda score: sum(_lost(score.policy, scores) for scores in self.elsewhere.values()))

    @property
    def alike(self) -> list[PolicyScore]:
        """The policies whose scores hardly differ from the best; those first that know less, then that promise more."""
        ranked = self.scores.ranked
        alike = [score for score in ranked if score.total <= ranked[0].total * (1.0 + ALIKE)]
        return sorted(alike, key=_merit)

    @property
    def contenders(self) -> list[PolicyScore]:
        """The policies that are compared again."""
        alike = self.alike
        return [*alike, *(score for score in self.scores.ranked if score not in alike)][:CONTENDERS]

    @property
    def surprises(self) -> list[Surprise]:
        return [_surprise(what, scores, self.recommended.policy) for what, scores in self.elsewhere.items()]

    @property
    def recommended_blind(self) -> PolicyScore | None:
        """The best policy that needs to know nothing about jobs in advance."""
        return next((score for score in self.scores.ranked if not score.knows), None)

    @cached_property
    def table(self) -> ResultTable:
        """One row per policy, the best first: how many times the best of each number it has."""
        rows = [
            {
                "policy": score.policy,
                "score": score.total,
                **{aspect.label: score.behind[aspect.name] for aspect in ASPECTS},
                "knows": ", ".join(score.knows),
            }
            for score in self.scores.ranked
        ]
        names = ["policy", "score", *(aspect.label for aspect in ASPECTS), "knows"]
        units = dict.fromkeys(names[1:-1], "ratio")
        return table_of("times the best of each number", rows, units, names)

    @property
    def reasons(self) -> list[str]:
        """The advice in sentences."""
        return [*_why(self), *_against(self)]

    def to_json(self) -> dict[str, Any]:
        blind = self.recommended_blind
        return {
            "fairlead": "advice/1",
            "recommended": self.recommended.policy,
            "recommended_blind": None if blind is None else blind.policy,
            "weights": dict(self.weights),
            "scores": [asdict(score) for score in self.scores.ranked],
            "left_out": dict(self.scores.left_out),
            "surprises": [asdict(surprise) for surprise in self.surprises],
            "reasons": self.reasons,
        }


def advise(
    cluster: Cluster | File,
    *,
    trace: Trace | File | None = None,
    generate: str | Mapping[str, Any] | None = None,
    policies: str | Sequence[AnyReference] = ALL,
    care: Numbers = None,
    seeds: str | int | Sequence[int] = "0..2",
    jobs: int | None = None,
    surprises: bool = True,
    budget: Duration | None = None,
    state: File | None = None,
    fresh: bool = False,
    workers: int | None = None,
    executor: str = "processes",
    ray_address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> Advice:
    """Run the policies that a service can use on a workload, and recommend one.

    A policy is judged by how many times the best of each number it has: mean and 99th percentile of completion times,
    makespan, largest finish-time ratio, and one plus the largest latency ratio. Its score is their geometric mean over
    seeds; `care` weighs them: `{"fairness": 3, "makespan": 0.5}`. The best five are compared again in worlds with wrong
    lengths, unequal servers, long restarts and more load, unless `surprises` is false. The other options are those of
    `fairlead.compare`; `budget` is for each of these comparisons.
    """
    weights, entrants, runs = weights_of(care), _field(policies), len(seeds_of(seeds))
    few = min(CONTENDERS, len(entrants)) if surprises and len(entrants) > 1 else 0
    total = runs * (len(entrants) + few * (len(SURPRISES) + 1))

    def judge(some: Sequence[_Entrant], before: int, **world: Any) -> tuple[PolicyComparison, Scores]:
        compared = compare(
            cluster,
            [entrant.reference for entrant in some],
            trace=trace,
            generate=generate,
            seeds=seeds,
            jobs=jobs,
            budget=budget,
            state=state,
            fresh=fresh,
            workers=workers,
            executor=executor,
            ray_address=ray_address,
            progress=None if progress is None else lambda done, _: progress(before + done, total),
            **world,
        )
        return compared, scores_of(compared.answer, (entrant.policy for entrant in some), weights)

    compared, scores = judge(list(entrants.values()), 0, **options)
    if not scores.ranked:
        why = "; ".join(f"{name}: {reason}" for name, reason in scores.left_out.items())
        raise InputError(f"no policy finished every job with every seed, so none can be recommended ({why})")
    advice = Advice(compared, scores, weights)
    contenders = [entrants[score.policy] for score in advice.contenders[:few]]
    if len(contenders) < 2:
        return advice
    worlds: dict[str, Any] = {what: {**options, **changed} for what, changed in SURPRISES.items()}
    load = _load_of(cluster, trace, generate, jobs, seeds_of(seeds)[0], options)
    if load is not None:
        worlds[f"{BUSIER - 1:.0%} more work arrives"] = {**options, "loads": [BUSIER * load]}
    before = runs * len(entrants)
    elsewhere = {
        what: judge(contenders, before + runs * few * i, **world)[1] for i, (what, world) in enumerate(worlds.items())
    }
    return replace(advice, elsewhere=elsewhere)


def weights_of(care: Numbers) -> dict[str, float]:
    """The weight of every aspect: 1 for those that are not named, and possibly 0 for others."""
    names = [aspect.name for aspect in ASPECTS]
    pairs = care if isinstance(care, Mapping) else parse_pairs(care or [], "--care", "fairness=3")
    weights = dict.fromkeys(names, 1.0)
    for name, text in pairs.items():
        try:
            weights[choose("--care", name, names)] = weight = float(text)
        except ValueError:
            weight = -1.0
        if not 0 <= weight < 1e6:
            raise InputError(f'--care {name}: "{text}" is not a number of at least 0')
    if not any(weights.values()):
        raise InputError("--care gives no number any weight; leave one above 0")
    return weights


def _field(policies: str | Sequence[AnyReference]) -> dict[str, _Entrant]:
    """The policies that take part, by name: those of rounds, which a service can run."""
    from_all, named = policies_of(policies)
    entrants = {}
    for ref in (*from_all, *named):
        policy = ref.load()
        if not isinstance(policy, TaskPolicy):
            entrants[policy.name] = _Entrant(policy, ref.text if ref.value is None else ref.value)
        elif ref in named:
            raise InputError(f"policy {policy.name} plans single tasks, which no service can run; leave it out")
    return entrants


@dataclass(frozen=True, slots=True)
class _Entrant:
    policy: Policy
    reference: AnyReference  # as a comparison takes it


def _load_of(
    cluster: Cluster | File,
    trace: Trace | File | None,
    generate: str | Mapping[str, Any] | None,
    jobs: int | None,
    seed: int,
    options: Mapping[str, Any],
) -> float | None:
    """The load of the workload; None if its arrivals span no time."""
    if trace is None:
        return generator_of(generator_options(generate or {})).load or LOAD
    reading = build(Reading, options)
    profile = reading.profile()
    whole = trace if isinstance(trace, Trace) else reading.read(trace, profile, seed)
    part = replace(whole, jobs=whole.jobs[:jobs])
    return trace_stats(part, profile, read_cluster(cluster, alias=reading.alias)).load or None


def _merit(score: PolicyScore) -> tuple[int, int]:
    """Less is better: what it must know, then what it promises."""
    return len(score.knows), -len(score.promises)


def _lost(policy: str, scores: Scores) -> float:
    """How far a policy is behind in a world, as a logarithm; infinite if it was not compared there, or left jobs unfinished."""
    return next((math.log(score.total) for score in scores.ranked if score.policy == policy), math.inf)


def _surprise(what: str, scores: Scores, recommended: str) -> Surprise:
    best = scores.ranked[0] if scores.ranked else None
    if recommended in scores.left_out or best is None:
        return Surprise(what, None if best is None else best.policy, None, scores.left_out.get(recommended, ""))
    return Surprise(what, best.policy, scores.of(recommended).total / best.total)


# ---- in words ------------------------------------------------------------------------------------------------------


def _why(advice: Advice) -> list[str]:
    best, ranked, alike = advice.recommended, advice.scores.ranked, advice.alike
    labels = {aspect.name: aspect.label for aspect in ASPECTS}
    first = f"Use {best.policy}: on average it has {best.total:.2f} times the best of each number"
    if best.behind[best.weakest] > 1.005:
        ahead = min(ranked, key=lambda score: score.behind[best.weakest]).policy
        first += f", and at most {best.behind[best.weakest]:.2f} times ({labels[best.weakest]}, where {ahead} is best)"
    sentences = [f"{first}."]
    if len(alike) == len(ranked) > 1:
        sentences.append(
            f"All policies are within {ALIKE:.0%}: this workload does not tell them apart. Try more jobs, or more load."
        )
    elif len(alike) > 1:
        others = ", ".join(score.policy for score in alike if score is not best)
        sentences.append(
            f"As good within {ALIKE:.0%}: {others}; it knows less, promises more, or suffers less from surprises."
        )
    elif len(ranked) > 1:
        sentences.append(
            f"It is ahead of {ranked[1].policy}, which has {ranked[1].total:.2f} times, "
            f"and had the lowest score with {best.won} of {counted(best.seeds, 'seed')}."
        )
    blind = advice.recommended_blind
    if best.knows and blind is not None:
        sentences.append(
            f"It needs to know the {' and '.join(best.knows)} of jobs; "
            f"of the policies that need not, {blind.policy} is the best with {blind.total:.2f} times."
        )
    if best.promises:
        sentences.append(f"It promises tenants: {', '.join(best.promises)}.")
    else:
        other = next((score for score in ranked if score.promises), None)
        if other is not None:
            sentences.append(
                f"It promises tenants nothing; of those that do, {other.policy} has {other.total:.2f} times."
            )
    return sentences


def _against(advice: Advice) -> list[str]:
    best, sentences = advice.recommended.policy, []
    for surprise in advice.surprises:
        if surprise.behind is None:
            instead = "" if surprise.best is None else f"; {surprise.best} is the best of the others"
            sentences.append(f"If {surprise.what}: {best} has no score, because {surprise.why}{instead}.")
        elif surprise.behind < 1.005:
            sentences.append(f"If {surprise.what}: {best} is still the best.")
        else:
            sentences.append(f"If {surprise.what}: {surprise.best} would be better by {surprise.behind - 1:.1%}.")
    sentences += [f"Not ranked: {name}, because {reason}." for name, reason in advice.scores.left_out.items()]
    return sentences
