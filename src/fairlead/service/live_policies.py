"""Policies that a service can run: the registered ones, and those in files that its operator named.

A file is never run in the API or the scheduler: it is loaded by the child that decides, and by a process of its own
(`python -m fairlead.service.live_policies`) that describes it at the start and tries new parameters.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.policies import REGISTRY, ROUND_POLICIES, as_round_policy, find_round_policy, register
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile, Speed
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State
from fairlead.studies.policy_lab.plugins import load_policy

POLICY_MEMORY_GIB = 8.0  # enough for libraries that reserve address space, such as numba and PyTorch
TRIAL_S = 60.0  # how long a file may take to load and to decide one small round


class PolicyFailedError(FairleadError):
    """A policy that did not decide, with the reason."""


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """What the API shows about a policy."""

    name: str
    summary: str = ""
    paper: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def card_of(policy: Policy) -> PolicyCard:
    return PolicyCard(policy.name, policy.summary, policy.paper, policy.parameters)


REGISTERED = {name: card_of(policy) for name, policy in ROUND_POLICIES.items()}


def configured(name: str, parameters: Mapping[str, Any], files: Sequence[str] = ()) -> Policy:
    """The policy with these parameters, each within its range. Loading `files` runs them."""
    if name not in REGISTRY:
        load_files(files)
    return find_round_policy(name).with_parameters(parameters)


def load_files(files: Sequence[str]) -> list[Policy]:
    """Register the policies of files such as `mine.py:POLICY` in this process. Loading a file runs it."""
    policies = [as_round_policy(load_policy(file)) for file in files]
    for file, policy in zip(files, policies, strict=True):
        try:
            register(policy)
        except InputError as error:
            raise InputError(f"--policy-file {file}: {error}") from None
    return policies


def describe_files(files: Sequence[str]) -> dict[str, PolicyCard]:
    """What the files contain, found out in a process of its own. InputError: they cannot be used."""
    if not files:
        return {}
    try:
        done = subprocess.run(_command(files), stdout=subprocess.PIPE, timeout=TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"--policy-file: loading {', '.join(files)} took more than {TRIAL_S:g} s") from None
    return {card["name"]: PolicyCard(**card) for card in _answer(files, done.returncode, done.stdout)}


async def try_apart(files: Sequence[str], name: str, parameters: Mapping[str, Any]) -> None:
    """Decide one small round with a policy of the files, in a process of its own. InputError: it cannot."""
    trial = await asyncio.create_subprocess_exec(*_command(files, name, parameters), stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(trial.communicate(), TRIAL_S)
    except TimeoutError:
        raise InputError(f"parameters: {name} did not decide a small round within {TRIAL_S:g} s") from None
    finally:
        if trial.returncode is None:
            trial.kill()
    _answer(files, trial.returncode or 0, output)


def tried(policy: Policy) -> Policy:
    """The policy, after a trial round: a value of the right type may still make no sense."""
    try:
        decide(look(_small_state(), policy, 60.0), policy, Memory())
    except Exception as error:  # any failure here is caused by the policy or a wrong value
        values = ", ".join(f"{key}={value!r}" for key, value in policy.parameters.items()) or "no parameters"
        raise InputError(
            f"parameters: {policy.name} cannot decide with {values} ({type(error).__name__}: {error})"
        ) from None
    return policy


def limit_memory(gib: float) -> None:
    """Limit what this process may add to its address space.

    It also writes no core file, and is the first process that a machine without memory kills.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    most = size + int(gib * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _command(files: Sequence[str], name: str | None = None, parameters: Mapping[str, Any] | None = None) -> list[str]:
    task = json.dumps({"files": list(files), "name": name, "parameters": dict(parameters or {})})
    return [sys.executable, "-m", "fairlead.service.live_policies", task]


def _answer(files: Sequence[str], code: int, output: bytes) -> list[dict[str, Any]]:
    try:
        answer = json.loads(output) if code == 0 else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise InputError(f"--policy-file {', '.join(files)}: the process that loaded it ended with code {code}")
    if "refused" in answer:
        raise InputError(answer["refused"])
    cards: list[dict[str, Any]] = answer["cards"]
    return cards


def _main(task_json: str) -> None:
    """Describe the policies of the files, after a trial of one of them; what they print goes to standard error."""
    task = json.loads(task_json)
    limit_memory(POLICY_MEMORY_GIB)
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        if task["name"] is not None:
            tried(configured(task["name"], task["parameters"], task["files"]))
        cards = [asdict(card_of(policy)) for policy in load_files(task["files"])]
        answer = json.dumps({"cards": cards}, default=repr)
    except InputError as error:
        answer = json.dumps({"refused": str(error)})
    os.write(ours, answer.encode())


def _small_state() -> State:
    """Two tenants with two jobs each that need more GPUs than there are."""
    cluster = parse_short_form("v100:2,k80:1")
    speeds = (Speed("m", "v100", 1, 1, 1.0, 2.0, "made up"), Speed("m", "k80", 1, 1, 1.0, 1.0, "made up"))
    state = State(cluster, TableEstimator(Profile("small", speeds), cluster))
    for number in range(4):
        spec = JobSpec(f"j{number}", f"t{number % 2}", "m", float(number), 1 + number // 3, 1000.0)
        state.fold(Arrived(spec.arrival_s, spec))
    return state


if __name__ == "__main__":
    _main(sys.argv[1])
