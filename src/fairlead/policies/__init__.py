"""One file per paper, pure; a literal registry name -> policy."""

from __future__ import annotations

from typing import Any

from fairlead.model.allocation import Level
from fairlead.model.arrays import FloatArray
from fairlead.model.words import choose
from fairlead.numerics.solve import Limit
from fairlead.policies.allox import allox
from fairlead.policies.equal_share import equal_share
from fairlead.policies.fft import fft
from fairlead.policies.gandiva_fair import gandiva_fair
from fairlead.policies.gavel import gavel
from fairlead.policies.gavel_ftf import gavel_ftf
from fairlead.policies.gavel_makespan import gavel_makespan
from fairlead.policies.gavel_sjf import gavel_sjf
from fairlead.policies.gavel_water import gavel_hierarchical, gavel_waterfill
from fairlead.policies.hare import plan as hare
from fairlead.policies.hare import replan as hare_online
from fairlead.policies.hlas import plan as hlas
from fairlead.policies.hlas_rounds import hlas_rounds
from fairlead.policies.hops import hops
from fairlead.policies.las import las
from fairlead.policies.oef import cooperative, non_cooperative
from fairlead.policies.orders import fifo, fifo_sticky, srtf
from fairlead.policies.policy import Knows, Policy, Promise
from fairlead.policies.sia import sia
from fairlead.policies.tenants import by_tenants
from fairlead.policies.themis import themis
from fairlead.policies.tiresias import tiresias, tiresias_fft

WORK = Limit(iterations=1_000_000)  # of one solve


def _oef_coop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray, warm: Any) -> tuple[FloatArray, str, Any]:
    found = cooperative(speedup, capacity, weight, warm, WORK)
    return found.shares, found.status, found.warm


def _oef_noncoop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray, _: Any) -> tuple[FloatArray, str, Any]:
    found = non_cooperative(speedup, capacity, weight, WORK)
    return found.shares, found.status, None


def _gandiva_fair(speedup: FloatArray, capacity: FloatArray, weight: FloatArray, _: Any) -> tuple[FloatArray, str, Any]:
    return gandiva_fair(speedup, capacity, weight), "", None


_ALL = (
    Policy(
        "fifo",
        "In order of arrival every round; each job takes its fastest type with room and may move.",
        "plain order",
        Level.GRANTS,
        fifo,
    ),
    Policy(
        "fifo-sticky",
        "In order of arrival; a job stays where it started until it ends.",
        "plain order",
        Level.GRANTS,
        fifo_sticky,
    ),
    Policy(
        "srtf",
        "Shortest remaining time on the fastest type first.",
        "plain order",
        Level.GRANTS,
        srtf,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "las",
        "Least attained GPU-time first, in queues; blind to GPU types, fastest free GPUs first.",
        "Tiresias (NSDI 2019), two-dimensional LAS",
        Level.GRANTS,
        las,
    ),
    Policy(
        "equal-share",
        "Every job its isolated 1/n of every GPU type.",
        "Gavel (OSDI 2020), isolated baseline",
        Level.SHARES,
        equal_share,
    ),
    Policy(
        "gavel",
        "The job worst off against its isolated share is as well off as it can be, then the total is largest.",
        "Gavel (OSDI 2020), heterogeneity-aware max-min",
        Level.SHARES,
        gavel,
    ),
    Policy(
        "oef-coop",
        "The largest total throughput that leaves no tenant envious of another.",
        "OEF (Middleware 2024), cooperative",
        Level.SHARES,
        by_tenants(_oef_coop),
        promises=frozenset({Promise.NO_ENVY, Promise.SHARING_INCENTIVE}),
    ),
    Policy(
        "oef-noncoop",
        "Equal normalised throughput for all tenants, as high as it goes; exaggerating one's speedups never pays.",
        "OEF (Middleware 2024), non-cooperative",
        Level.SHARES,
        by_tenants(_oef_noncoop),
        promises=frozenset({Promise.NO_WASTE, Promise.NO_EXAGGERATION}),
    ),
    Policy(
        "gandiva-fair",
        "Every tenant its equal share of every type, then trades between tenants with unlike speedups.",
        "Gandiva_fair (EuroSys 2020)",
        Level.SHARES,
        by_tenants(_gandiva_fair),
        promises=frozenset({Promise.SHARING_INCENTIVE}),
    ),
    Policy(
        "fft",
        "Every round the cheapest assignment of jobs to types; a job that lags behind its fair progress gets cheaper.",
        "FFT (ICS 2025)",
        Level.GRANTS,
        fft,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "allox",
        "One queue per type; an arrival joins where it would end first, and is never interrupted.",
        "AlloX (EuroSys 2020), as FFT's paper uses it",
        Level.GRANTS,
        allox,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "tiresias",
        "Least attained GPU-time first, in queues with promotion; a running job keeps its type.",
        "Tiresias (NSDI 2019)",
        Level.GRANTS,
        tiresias,
    ),
    Policy(
        "tiresias-fft",
        "One queue per type, shortest remaining GPU-time first in each, no moves between types.",
        "Tiresias (NSDI 2019), as FFT's paper uses it",
        Level.GRANTS,
        tiresias_fft,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "themis",
        "GPUs on leases, auctioned to the jobs that are furthest behind their fair finish.",
        "Themis (NSDI 2020)",
        Level.GRANTS,
        themis,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "gavel-sjf",
        "Shares that favour the speed of the jobs with the shortest time to go.",
        "Gavel (OSDI 2020), shortest job first",
        Level.SHARES,
        gavel_sjf,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "gavel-waterfill",
        "Max-min against the isolated share, level by level: who is held down stays, the others rise further.",
        "Gavel (OSDI 2020), max-min with water filling",
        Level.SHARES,
        gavel_waterfill,
    ),
    Policy(
        "gavel-hierarchical",
        "Water filling over tenants by weight, and inside each tenant over its jobs, fair or first in first out.",
        "Gavel (OSDI 2020), hierarchical",
        Level.SHARES,
        gavel_hierarchical,
    ),
    Policy(
        "gavel-ftf",
        "The job that ends latest against its time alone ends as early as it can, then the total speed is largest.",
        "Gavel (OSDI 2020), finish-time fairness",
        Level.SHARES,
        gavel_ftf,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "gavel-makespan",
        "The last of the jobs that are here ends as early as it can.",
        "Gavel (OSDI 2020), makespan (its minimum total duration)",
        Level.SHARES,
        gavel_makespan,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "hops",
        "Who is latest first; each gets a concrete place, by a program that weighs lateness and speeds.",
        "Hops (SoCC 2024)",
        Level.PLACEMENT,
        hops,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "hare",
        "Single tasks of training rounds on mixed GPUs; the best of a portfolio of plans, made in advance.",
        "Hare (HPDC 2022)",
        Level.TASKS,
        hare,
        knows=frozenset({Knows.LENGTHS, Knows.ARRIVALS}),
    ),
    Policy(
        "hare-online",
        "Single tasks on mixed GPUs; the shortest remaining work first, planned anew after every event.",
        "Hare (HPDC 2022), without knowledge of arrivals",
        Level.TASKS,
        hare_online,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "hlas",
        "Single tasks on mixed GPUs; least attained service in reference seconds first, in queues.",
        "Hare (IEEE TCC 2024), heterogeneity-aware least attained service",
        Level.TASKS,
        hlas,
    ),
    Policy(
        "hlas-rounds",
        "Least attained service in reference GPU-seconds first; a relaxed job may mix the free GPUs of several types.",
        "Hare (IEEE TCC 2024), in rounds, for live clusters",
        Level.GRANTS,
        hlas_rounds,
    ),
    Policy(
        "sia",
        "Every round the types and widths with the best power mean of normalised goodputs; a restart counts.",
        "Sia (SOSP 2023), as Hops' paper compares with it",
        Level.GRANTS,
        sia,
        knows=frozenset({Knows.LENGTHS}),
    ),
)

REGISTRY: dict[str, Policy] = {policy.name: policy for policy in _ALL}


def find_policy(name: str) -> Policy:
    return REGISTRY[choose("policy", name, REGISTRY)]
