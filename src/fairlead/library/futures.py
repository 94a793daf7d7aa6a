"""`fairlead.what_if`: scenarios from the live state, a snapshot or a journal, side by side."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fairlead.library.live import job_of
from fairlead.library.origins import open_origin, running_origin
from fairlead.model.errors import InputError
from fairlead.model.quota_text import parse_quota
from fairlead.model.units import parse_gpu_time, positive_duration
from fairlead.model.words import did_you_mean, parse_pairs

if TYPE_CHECKING:
    from fairlead.model.jobs import JobSpec
    from fairlead.model.quotas import Quota
    from fairlead.policies.policy import Policy
    from fairlead.rounds.state import State
    from fairlead.studies.runs.origin import Origin
    from fairlead.studies.what_if.changes import Hypothetical
    from fairlead.studies.what_if.scenarios import Scenario, WhatIfAnswer

AS_IT_IS = "as it is"


def what_if(
    from_: str | None = None,
    *,
    policy: Sequence[str | Policy] = (),
    weight: Sequence[str] = (),
    quota: Sequence[str] = (),
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    submit: Sequence[str] = (),
    cancel: Sequence[str] = (),
    load: float | None = None,
    preemption_limit: str | None = None,
    tenant_preemption_limit: str | None = None,
    scenario: Sequence[str] = (),
    horizon: str | float = "24h",
    seeds: int = 5,
    round_: str | float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WhatIfAnswer:
    """What would happen, side by side with what happens anyway; nothing of a running service changes.

    `from_` is a journal (`run.jsonl@12h`), a snapshot or a state directory; without it, the running service. The other
    keywords are the options of `fairlead what-if`, as lists: each policy is a scenario with all the changes that are named,
    and each `scenario` has its own, such as `"policy=fft add=8xh100 name=larger"`.
    """
    from fairlead.studies.what_if.scenarios import Scenario, ask_what_if

    horizon_s = positive_duration("--horizon", horizon)
    origin = running_origin() if from_ is None else open_origin(from_)
    words: dict[str, Sequence[str]] = {
        "weight": weight,
        "quota": quota,
        "add": add,
        "remove": remove,
        "submit": submit,
        "cancel": cancel,
        "load": [] if load is None else [str(load)],
        "preemption-limit": [] if preemption_limit is None else [preemption_limit],
        "tenant-preemption-limit": [] if tenant_preemption_limit is None else [tenant_preemption_limit],
    }
    single = [(key, text) for key, texts in words.items() for text in texts]
    asked = [_scenario(origin, [("policy", one), *single]) for one in policy]
    if single and not policy:
        asked = [_scenario(origin, single)]
    asked += [_scenario(origin, _split(text)) for text in scenario]
    scenarios = _distinct([Scenario(AS_IT_IS), *asked])
    hours = max(round(horizon_s / 3600), 1)  # of one simulation, so that a long one shows how far it is
    total = len(scenarios) * seeds * hours
    tick = None if progress is None else lambda done: progress(int(done * hours), total)
    round_s = None if round_ is None else positive_duration("--round", round_)
    return ask_what_if(origin, scenarios, horizon_s, range(seeds), tick, round_s)


def _split(text: str) -> list[tuple[str, str]]:
    """The changes of `--scenario`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f'--scenario "{text}": {error}') from None
    pairs: list[tuple[str, str]] = []
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise InputError(f'--scenario "{text}": "{word}" is not CHANGE=VALUE, such as policy=fft')
        pairs.append((key, value))
    if not pairs:
        raise InputError("--scenario is empty; wanted changes such as policy=fft")
    return pairs


def _scenario(origin: Origin, pairs: Sequence[tuple[str, str | Policy]]) -> Scenario:
    from fairlead.studies.what_if.scenarios import Scenario

    names = [value for key, value in pairs if key == "name"]
    changes = [(key, value) for key, value in pairs if key != "name"]
    title = names[-1] if names else " ".join(_title(key, value) for key, value in changes)
    return Scenario(str(title), tuple(_change(origin, key, value) for key, value in changes))


def _title(key: str, value: str | Policy) -> str:
    return f"{key}={value}" if key != "policy" else value if isinstance(value, str) else value.name


def _change(origin: Origin, key: str, value: str | Policy) -> Hypothetical:
    from fairlead.library.own_policies import load as load_policy
    from fairlead.policies import as_round_policy
    from fairlead.studies.what_if.changes import UsePolicy

    return UsePolicy(as_round_policy(load_policy(value))) if key == "policy" else _changed(origin, key, str(value))


def _changed(origin: Origin, key: str, value: str) -> Hypothetical:
    from fairlead.studies.what_if.changes import (
        CancelJob,
        LimitPreemption,
        ScaleArrivals,
        SetTerms,
        SubmitJobs,
        TakeNode,
    )

    builders: dict[str, Callable[[], Hypothetical]] = {
        "weight": lambda: SetTerms(_tenant(value), weight=_number("weight", value.rpartition("=")[2])),
        "quota": lambda: SetTerms(value.partition(":")[0], quotas=(_quota(value),)),
        "add": lambda: _nodes(value),
        "remove": lambda: TakeNode(value),
        "submit": lambda: SubmitJobs((_job(origin.state, value),)),
        "cancel": lambda: CancelJob(value),
        "load": lambda: ScaleArrivals(_number("load", value)),
        "preemption-limit": lambda: LimitPreemption(gpu_s=parse_gpu_time(value, key)),
        "tenant-preemption-limit": lambda: LimitPreemption(tenant_gpu_s=parse_gpu_time(value, key)),
    }
    if key not in builders:
        raise InputError(f'"{key}" is not a change; {did_you_mean(key, ["policy", *builders])}')
    return builders[key]()


def _tenant(text: str) -> str:
    tenant, sign, _ = text.rpartition("=")
    if not sign:
        raise InputError(f'weight "{text}" is not TENANT=WEIGHT, such as vision=2')
    return tenant


def _quota(text: str) -> Quota:
    from fairlead.model.quotas import Quota

    _, sign, rest = text.partition(":")
    if not sign:
        raise InputError(f'quota "{text}" is not TENANT:TYPE=OWN[+BORROW][-LEND], such as vision:v100=8+4')
    ((type_, size),) = parse_pairs([rest], "--quota", "vision:v100=8+4-2").items()
    return Quota(**parse_quota(type_, size))


def _nodes(text: str) -> Hypothetical:
    from fairlead.model.cluster import NodeGroup
    from fairlead.model.gpus import canonical_gpu
    from fairlead.studies.what_if.changes import AddNodes

    match = re.fullmatch(r"(?:(\d{1,6})x)?(\d{1,4})x(\w[\w.-]*)", text.strip().lower())
    if not match:
        raise InputError(f'add "{text}" is not [NODESx]GPUSxTYPE, such as 8xh100, or 2x8xh100 for two nodes')
    return AddNodes(NodeGroup(int(match[1] or 1), canonical_gpu(match[3]), int(match[2])))


def _job(state: State, path: str) -> JobSpec:
    job = job_of(path)
    tenant = job.tenant
    if tenant is None:
        if len(state.tenants) != 1:
            raise InputError("names no tenant; add `tenant:` to the file", path=path)
        tenant = next(iter(state.tenants))
    capacity = dict(zip(state.cluster.types, state.cluster.capacity.tolist(), strict=True))
    return job.spec(job.name, tenant, state.now_s, capacity)


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f'{what}: "{text}" is not a number') from None


def _distinct(scenarios: list[Scenario]) -> list[Scenario]:
    names = [scenario.name for scenario in scenarios]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f'two scenarios are called "{twice}"; add name=... to one of them')
    return scenarios
