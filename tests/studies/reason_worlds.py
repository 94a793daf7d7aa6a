"""A tiny world for each reason for which a job waits: an origin, and the id of the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from building import THREE, Scene, job, setup, speed
from fairlead.model.allocation import NOWHERE, Answer, Level, Placement
from fairlead.model.decision import Cause
from fairlead.model.events import Arrived, Held, Lost, NodeRemoved, Started, TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.outcomes import Reason
from fairlead.model.quotas import Quota
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import Policy
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.loop import Settings
from fairlead.rounds.state import State
from fairlead.studies.runs.origin import Origin

FIFO, GAVEL = ROUND_POLICIES["fifo"], ROUND_POLICIES["gavel"]
ROUND_S = 360.0


def origin_of(state: State, policy: Policy = FIFO, speeds: Profile = THREE, **settings: Any) -> Origin:
    """An origin without a memory, as a service has it."""
    kept = Settings(round_s=ROUND_S, **settings)
    header = setup(state.specs, state.cluster, policy, speeds).header()
    return Origin("a tiny world", header, state, policy, kept)


def decided(state: State, policy: Policy = FIFO, cause: Cause = Cause.ROUND, **settings: Any) -> Origin:
    """The origin after a decision of the policy, which is folded."""
    origin = origin_of(state, policy, **settings)
    decision, _ = decide(look(state, policy, ROUND_S), policy, Memory(), cause, origin.settings.rules)
    state.fold(decision)
    if decision.start.size:
        jobs, now = decision.start, np.full(len(decision.start), decision.time_s)
        rate = [state.best_rate[j, state.held_type[j]] for j in jobs.tolist()]
        state.fold(Started(decision.time_s, jobs, np.array(rate), now))
    return origin


def undecided() -> tuple[Origin, str]:
    return origin_of(Scene([job("a", 1)], "v100:1", now_s=5.0).state()), "a"


def capacity() -> tuple[Origin, str]:
    jobs = [job("a", 3, 30_000.0), job("b", 2, types=("v100",))]
    state = Scene(jobs, "v100:4,k80:2", held={"a": ((0, 3),)}, now_s=10.0).state()
    return decided(state, cause=Cause.EVENT), "b"


def fragmented() -> tuple[Origin, str]:
    whole = (speed("whole", "v100", 1.0), replace(speed("whole", "v100", 0.0), gpus=2, nodes=2))
    speeds = Profile("made up", (*whole, speed("even", "v100", 1.0)))
    jobs = [job("a", 3, 30_000.0), job("b", 3, 30_000.0), job("c", 2, model="whole")]
    state = Scene(jobs, "v100:8", speeds, held={"a": ((0, 3),), "b": ((1, 3),)}).state()
    decided(state)
    return origin_of(state, speeds=speeds), "c"


def share() -> tuple[Origin, str]:
    return decided(Scene([job("a", samples=1e6), job("b", samples=1e6)], "v100:1").state(), GAVEL), "b"


def order() -> tuple[Origin, str]:
    jobs = [job("a", 4, 40_000.0, tenant="u"), job("b", 2, 400.0, types=("v100",))]
    return decided(Scene(jobs, "v100:4,k80:2").state()), "b"


def quota() -> tuple[Origin, str]:
    state = Scene([job("a", samples=1e5), job("b")], "v100:4").state()
    state.fold(TenantSet(0.0, "t", 1.0, (Quota("v100", 1, borrowing_limit=0),)))
    return decided(state), "b"


def held() -> tuple[Origin, str]:
    state = Scene([job("a")], "v100:1").state()
    state.fold(Held(1.0, np.array([0]), np.array([0.0])))
    return origin_of(state), "a"


def _first_only(view: View, memory: None) -> tuple[Placement, None]:
    considered = np.arange(view.jobs) == 0
    spots = (((0, 1),), *(NOWHERE,) * (view.jobs - 1)) if view.jobs else ()
    return Placement(spots, Answer(considered=considered, holds_until_s=math.inf)), None


def window() -> tuple[Origin, str]:
    state = Scene([job("a", samples=1e5), job("b")], "v100:4").state()
    return decided(state, Policy("first", "", "", Level.PLACEMENT, _first_only)), "b"


def min_run() -> tuple[Origin, str]:
    state = Scene([job("a", 2), job("b", 2, 1e5)], "v100:2", held={"b": ((0, 2),)}, now_s=360.0).state()
    return decided(state, min_run_s=600.0), "a"


def preemption_limit() -> tuple[Origin, str]:
    held, jobs = {"b": ((0, 2),)}, [job("a", 2), job("b", 2, 1e5)]
    state = Scene(jobs, "v100:2", held=held, now_s=360.0, restart_s=100.0).state()
    state.pre_empted = [(300.0, 0, 900.0)]
    return decided(state, preemption_gpu_s=1000.0), "a"


def node_down() -> tuple[Origin, str]:
    return decided(Scene([job("a", 6)], "v100:8", down=[1]).state()), "a"


def never_fits() -> tuple[Origin, str]:
    state = Scene([job("a", 2, types=("v100",))], "v100:2,k80:2").state()
    state.fold(NodeRemoved(1.0, 0))
    return origin_of(state), "a"


def measuring() -> tuple[Origin, str]:
    jobs: Sequence[JobSpec] = [job("a", samples=1e5), job("b")]
    made = replace(setup(jobs, "v100:1,k80:1", trial_s=60.0), sensing=Sensing.THREE_LAYER, all_new=True)
    state = State(made.cluster, made.estimator())
    for spec in jobs:
        state.fold(Arrived(0.0, spec))
    policy = replace(FIFO, trial_s=60.0)
    return decided(state, policy), "b"


def back_off() -> tuple[Origin, str]:
    state = Scene([job("a")], "v100:1", held={"a": ((0, 1),)}, now_s=100.0).state()
    state.fold(Lost(100.0, np.array([0]), np.array([0.0]), reason="exit code 1", setbacks=2, again_s=160.0))
    return origin_of(state), "a"


WORLDS: dict[Reason, Callable[[], tuple[Origin, str]]] = {
    Reason.UNDECIDED: undecided,
    Reason.CAPACITY: capacity,
    Reason.FRAGMENTED: fragmented,
    Reason.SHARE: share,
    Reason.ORDER: order,
    Reason.QUOTA: quota,
    Reason.HELD: held,
    Reason.WINDOW: window,
    Reason.MIN_RUN: min_run,
    Reason.PREEMPTION_LIMIT: preemption_limit,
    Reason.NODE_DOWN: node_down,
    Reason.NEVER_FITS: never_fits,
    Reason.MEASURING: measuring,
    Reason.BACK_OFF: back_off,
}
