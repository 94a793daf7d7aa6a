"""Workloads from a seed: arrivals, durations, widths, tenants and models, at a stated load on a stated cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.jobs import MOST_GPUS, JobSpec
from fairlead.model.words import did_you_mean
from fairlead.numerics.random import stream
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile
from fairlead.traces.formats import Trace
from fairlead.traces.load import seconds_per_step

MOST_JOBS = 10_000_000
_E = TypeVar("_E", bound=StrEnum)

# Shares of the 82,247 jobs of the derived Philly trace (Jeon et al., ATC'19) with 1, 2, 4 and 8 GPUs, which are 99.7 %.
PHILLY_WIDTHS: Mapping[int, float] = {1: 0.9317, 2: 0.0221, 4: 0.0227, 8: 0.0200}


class Arrivals(StrEnum):
    POISSON = "poisson"
    BURSTY = "bursty"


class Durations(StrEnum):
    PHILLY = "philly"
    GAVEL = "gavel"


@dataclass(frozen=True, slots=True)
class Burst:
    """A two-state arrival process: calm, and bursts in which jobs arrive `ratio` times as often.

    Bursts take up `share` of the time, and one lasts as long as `jobs` jobs take to arrive at the mean rate.
    """

    ratio: float = 10.0
    share: float = 0.1
    jobs: float = 20.0

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("ratio", self.ratio, 1, 1e6),
            ("share", self.share, 0, 1),
            ("jobs", self.jobs, 0, 1e9),
        ):
            if not low < value < high:  # also catches NaN
                raise InputError(f"burst {name} is {value}; wanted a number above {low} and below {high:g}")


def generate(
    cluster: Cluster,
    profile: Profile,
    *,
    jobs: int,
    load: float = 0.8,
    seed: int = 0,
    arrivals: Arrivals | str = Arrivals.POISSON,
    burst: Burst | None = None,
    durations: Durations | str = Durations.PHILLY,
    widths: Mapping[int, float] | None = None,
    models: Mapping[str, float] | None = None,
    tenants: int = 1,
    tenant_skew: float = 1.0,
) -> Trace:
    """A workload that offers `load` to `cluster`.

    `traces.load` defines the load and the mean time of a job over the types of a cluster; durations are drawn for that
    mean time, and steps follow from them.

    Arrivals are Poisson, or bursty (see `Burst`). Durations come from `philly_durations` or `gavel_durations`. Widths
    are drawn by weight (default: Philly's), models by weight (default: all equal) among those that run at that width;
    widths and models that can never run on the cluster are not drawn. Tenant k of n has weight 1 / k^tenant_skew.
    """
    _check(jobs, load, tenants, tenant_skew)
    choice = _Choice(cluster, profile, widths or PHILLY_WIDTHS, models)
    width = choice.draw_widths(stream(seed, "widths"), jobs)  # j
    model = choice.draw_models(stream(seed, "models"), width)
    duration_s = _DURATIONS[_one_of(Durations, durations)](stream(seed, "durations"), jobs)  # j
    seconds_per_step = np.array([choice.seconds_per_step[w, m] for w, m in zip(width.tolist(), model, strict=True)])
    steps = np.maximum(np.rint(duration_s / seconds_per_step), 1.0)  # j
    work_gpu_s = float(np.dot(width, steps * seconds_per_step))
    mean_gap_s = work_gpu_s / (load * cluster.total_gpus * max(jobs, 1))
    at = _ARRIVALS[_one_of(Arrivals, arrivals)](stream(seed, "arrivals"), jobs, burst or Burst())  # j  mean gap 1
    arrival_s = np.round((at - at[0]) * mean_gap_s, 3) if jobs else at
    tenant = _draw_tenants(stream(seed, "tenants"), jobs, tenants, tenant_skew)
    digits = len(str(jobs))
    specs = tuple(
        JobSpec(f"job-{i:0{digits}d}", f"tenant-{u + 1}", m, a, g, s)
        for i, (u, m, a, g, s) in enumerate(
            zip(tenant.tolist(), model, arrival_s.tolist(), width.tolist(), steps.tolist(), strict=True), 1
        )
    )
    notes = (
        f"generated: {jobs} jobs, {arrivals} arrivals, {durations} durations, load {load:g} on {cluster.total_gpus} GPUs, seed {seed}",
        f'models and speeds from profile "{profile.name}"',
    )
    return Trace(specs, "generated workload", "generated", notes=notes)


class _Choice:
    """The widths and, by width, the models that run on the cluster, with their mean time per step."""

    def __init__(
        self, cluster: Cluster, profile: Profile, widths: Mapping[int, float], models: Mapping[str, float] | None
    ) -> None:
        mix = models or dict.fromkeys(profile.models, 1.0)
        _check_weights("widths", widths)
        _check_weights("models", mix)
        for model in mix:
            if model not in profile.models:
                raise InputError(
                    f'model "{model}" is not in profile "{profile.name}"; {did_you_mean(model, profile.models)}'
                )
        rates = TableEstimator(profile, cluster)
        self.seconds_per_step: dict[tuple[int, str], float] = {}
        self.models: dict[int, list[str]] = {}
        for width in widths:
            if not 1 <= width <= MOST_GPUS:
                raise InputError(f"width {width} is not a number of GPUs; wanted 1 to {MOST_GPUS}")
            for model in mix:
                seconds = seconds_per_step(rates, cluster, model, width)
                if seconds is not None and mix[model] > 0:
                    self.seconds_per_step[width, model] = seconds
                    self.models.setdefault(width, []).append(model)
        self.mix = mix
        self.widths = {width: widths[width] for width in self.models if widths[width] > 0}
        if not self.widths:
            raise InputError(
                "none of these models runs on this cluster at any of these widths; change one of the three"
            )

    def draw_widths(self, rng: np.random.Generator, jobs: int) -> IntArray:
        return np.array(list(self.widths), dtype=np.int64)[_draw(rng, jobs, list(self.widths.values()))]

    def draw_models(self, rng: np.random.Generator, width: IntArray) -> list[str]:
        at = rng.random(len(width))
        edges = {w: _edges([self.mix[m] for m in models]) for w, models in self.models.items()}
        return [
            self.models[w][int(np.searchsorted(edges[w], x, side="right"))]
            for w, x in zip(width.tolist(), at, strict=True)
        ]


def philly_durations(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Three log-normals, fitted by EM to the durations of the derived Philly trace (Jeon et al., ATC'19).

    The trace and this fit have, in seconds, medians of 1,144 and 1,108, p90 of 11,265 and 10,878, and p99 of 254,758
    and 267,762. Values are clipped to 1 s and 4,628,226 s, the longest duration of the trace.
    """
    share, median_s, sigma = (0.3113, 0.5961, 0.0926), (71.83, 1786.4, 47360.0), (0.6779, 1.0034, 1.3925)
    part = _draw(rng, jobs, share)
    drawn = np.array(median_s)[part] * np.exp(np.array(sigma)[part] * rng.standard_normal(jobs))
    return np.asarray(np.clip(drawn, 1.0, 4_628_226.0))


def gavel_durations(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Gavel's rule (Narayanan et al., OSDI'20): 10^x minutes, x uniform in 1.5..3 for 80 % of jobs, else in 3..4."""
    long = rng.random(jobs) >= 0.8
    x = rng.random(jobs)
    return np.asarray(60.0 * 10.0 ** np.where(long, 3.0 + x, 1.5 + 1.5 * x))


def _poisson(rng: np.random.Generator, jobs: int, burst: Burst) -> FloatArray:
    return np.cumsum(rng.exponential(size=jobs))


def _bursty(rng: np.random.Generator, jobs: int, burst: Burst) -> FloatArray:
    """A Poisson process of rate 1 whose time is the integral of the modulated rate."""
    calm_rate = 1.0 / (1.0 - burst.share + burst.share * burst.ratio)
    lengths = burst.jobs * np.array([(1.0 - burst.share) / burst.share, 1.0])  # calm, burst
    rates = calm_rate * np.array([1.0, burst.ratio])
    events = np.cumsum(rng.exponential(size=jobs))
    edges, passed = [0.0], [0.0]
    switches = stream(int(rng.integers(2**32)), "switches")
    while jobs and passed[-1] <= events[-1]:
        for state in (0, 1):
            stay = switches.exponential(lengths[state])
            edges.append(edges[-1] + stay)
            passed.append(passed[-1] + stay * rates[state])
    return np.interp(events, passed, edges) if jobs else events


def _draw_tenants(rng: np.random.Generator, jobs: int, tenants: int, skew: float) -> IntArray:
    return _draw(rng, jobs, (np.arange(1, tenants + 1, dtype=np.float64) ** -skew).tolist())


def _draw(rng: np.random.Generator, count: int, weights: tuple[float, ...] | list[float]) -> IntArray:
    return np.searchsorted(_edges(weights), rng.random(count), side="right").astype(np.int64)


def _edges(weights: tuple[float, ...] | list[float]) -> FloatArray:
    """The inner borders of intervals in 0..1, as wide as the weights; the last has no end that rounding could miss."""
    return np.asarray(np.cumsum(weights)[:-1] / np.sum(weights))


_DURATIONS = {Durations.PHILLY: philly_durations, Durations.GAVEL: gavel_durations}
_ARRIVALS = {Arrivals.POISSON: _poisson, Arrivals.BURSTY: _bursty}


def _one_of(kind: type[_E], word: str) -> _E:
    try:
        return kind(word)
    except ValueError:
        raise InputError(
            f'"{word}" is not among the known {kind.__name__.lower()}; {did_you_mean(word, list(kind))}'
        ) from None


def _check(jobs: int, load: float, tenants: int, tenant_skew: float) -> None:
    if not 0 <= jobs <= MOST_JOBS:
        raise InputError(f"jobs is {jobs}; wanted a whole number from 0 to {MOST_JOBS}")
    if not (math.isfinite(load) and 0 < load <= 1000):
        raise InputError(f"load is {load}; wanted a number above 0 up to 1000")
    if not 1 <= tenants <= 100_000:
        raise InputError(f"tenants is {tenants}; wanted a whole number from 1 to 100000")
    if not (math.isfinite(tenant_skew) and 0 <= tenant_skew <= 10):
        raise InputError(f"tenant_skew is {tenant_skew}; wanted a number from 0 to 10")


def _check_weights(name: str, weights: Mapping[int, float] | Mapping[str, float]) -> None:
    for key, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise InputError(f"{name}: the weight of {key} is {weight}; wanted a number that is not negative")
    if not sum(weights.values()) > 0:
        raise InputError(f"{name}: all weights are 0; wanted at least one above 0")
