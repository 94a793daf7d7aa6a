"""The two loops of the simulator, and the choice between them by the kind of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fairlead.model.changes import Change
from fairlead.policies.policy import AnyPolicy, Policy, TaskPolicy
from fairlead.rounds.loop import Journal, Run, Settings, run
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.tasks.engine import check_world, run_tasks
from fairlead.sim.truth import Truth, World


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a run needs besides its policy. The state holds the speeds that the scheduler assumes."""

    truth: Truth
    settings: Settings
    state: State
    journal: Journal
    tick: Callable[[State], None] | None = None  # called after every decision, for progress bars
    explain: bool = True  # decisions say why; not needed where nobody reads them
    changes: Sequence[Change] = ()  # of the cluster


# Runs to the end of all jobs; also returns the GPU-seconds on which new models were measured.
RunLoop: TypeAlias = Callable[[Stage], tuple[Run, float]]


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop for a kind of policy, and what that loop simulates."""

    decides: str  # what is decided, for messages
    run: RunLoop
    faults: bool  # nodes may fail
    profiling: bool  # new models may be measured first
    changes: bool  # nodes may join and leave
    places: bool  # jobs have nodes, so they move between them, and the hidden speeds of nodes matter
    check: Callable[[World], None]  # raises an error if the world has what that loop does not simulate


def loop_for(policy: AnyPolicy) -> Loop:
    """The loop of rounds, or the loop of single tasks."""
    if isinstance(policy, TaskPolicy):
        return Loop(
            "single tasks",
            partial(_run_tasks, policy),
            faults=False,
            profiling=False,
            changes=False,
            places=False,
            check=partial(check_world, policy),
        )
    return Loop(
        "rounds",
        partial(_run_rounds, policy),
        faults=True,
        profiling=True,
        changes=True,
        places=True,
        check=lambda world: None,
    )


def _run_rounds(policy: Policy, stage: Stage) -> tuple[Run, float]:
    engine = SimEngine(stage.truth, stage.changes, senses=stage.state.learner is not None)
    done = run(engine, stage.state, policy, stage.settings, stage.journal, stage.tick, explain=stage.explain)
    return done, engine.profiling.gpu_s


def _run_tasks(policy: TaskPolicy, stage: Stage) -> tuple[Run, float]:
    believed = stage.state.estimator
    done = run_tasks(stage.truth, believed, policy, stage.settings, stage.state, stage.journal, stage.tick)
    return done, 0.0
