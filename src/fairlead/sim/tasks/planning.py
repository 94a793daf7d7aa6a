"""Asks a policy for its plan: the policy gets what it declares to know, and its answer is checked for foresight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from fairlead.model.errors import InputError
from fairlead.model.tasks import Instance, Known, Rule, Sized, TaskPlan, first_jobs
from fairlead.policies.policy import Knows, TaskPolicy

SAME = 1e-9  # relative; a rule that is made for fewer jobs may differ by rounding


def plan_for(policy: TaskPolicy, jobs: Instance) -> TaskPlan:
    """The plan of a policy. One that does not know arrivals must plan a job from the jobs up to it alone."""
    plan = _ask(policy, jobs)
    if Knows.ARRIVALS not in policy.knows:
        for count in _moments(jobs):
            _check_foresight(policy, plan, _ask(policy, first_jobs(jobs, count)), count)
    return plan


def shown_to(policy: TaskPolicy, jobs: Instance) -> Known | Sized | Instance:
    """What the policy may see: arrival times and lengths only if it declares them."""
    if Knows.ARRIVALS in policy.knows:
        return jobs
    return jobs.sized if Knows.LENGTHS in policy.knows else jobs.known


def _ask(policy: TaskPolicy, jobs: Instance) -> TaskPlan:
    """The answer, checked because policies may be plug-ins."""
    answer: object = cast(Callable[[Any], TaskPlan], policy.plan)(shown_to(policy, jobs))
    if isinstance(answer, TaskPlan):
        return answer
    raise InputError(
        f"policy {policy.name} returned {type(answer).__name__.replace('NoneType', 'None')}; plan must return a TaskPlan, "
        'such as TaskPlan((("my rule", rule),))'
    )


def _moments(jobs: Instance) -> list[int]:
    """Numbers of jobs that had arrived at two moments: before the middle one and before the last one."""
    if not jobs.jobs:
        return []
    at_s = jobs.arrival_s[[jobs.jobs // 2, -1]]
    return sorted({int(count) for count in np.searchsorted(jobs.arrival_s, at_s)} - {0})


def _check_foresight(policy: TaskPolicy, plan: TaskPlan, earlier: TaskPlan, count: int) -> None:
    """The plan must treat the first `count` jobs as the plan for these jobs alone does."""
    rules = [rule for _, rule in plan.candidates], [rule for _, rule in earlier.candidates]
    same = len(rules[0]) == len(rules[1]) and all(map(lambda a, b: _same_start(a, b, count), *rules))
    if not same:
        raise InputError(
            f"policy {policy.name} plans the first {count} jobs differently if it sees later ones, which it does not declare "
            "to know; make a job's part of the rule from the jobs up to it, or declare Knows.ARRIVALS"
        )


def _same_start(rule: Rule | Any, earlier: Rule | Any, count: int) -> bool:
    if not (isinstance(rule, Rule) and isinstance(earlier, Rule)):
        return False  # a list is an order of all rounds of all jobs
    scalars = ("growth", "queues", "promote", "choice", "sigma")
    if any(getattr(rule, name) != getattr(earlier, name) for name in scalars):
        return False
    columns = [(getattr(rule, name), getattr(earlier, name)) for name in ("base", "slope", "unit", "cost_s")]
    columns = [(a if a is None else a[:count], b) for a, b in columns]
    columns.append((rule.by_round[: len(earlier.by_round)], earlier.by_round))
    return all(_same_column(a, b) for a, b in columns)


def _same_column(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and np.allclose(a, b, rtol=SAME, atol=0.0)
