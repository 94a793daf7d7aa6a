"""Speeds that a tenant declares and that are not true.

A tenant declares speeds by the name of a model. One that exaggerates submits its jobs under a name for which the
scheduler's profile has higher speeds than the jobs have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fairlead.model.jobs import JobSpec
from fairlead.rates.iteration import Parts
from fairlead.rates.profile import Profile

_TIMES = (
    *("forward_s", "backward_s", "update_s", "load_cached_s", "load_disk_s", "wait_cached_s", "wait_disk_s"),
    "params_gib",  # so that communication takes less time, too
)


def with_declared_models(jobs: Sequence[JobSpec], speeds: Mapping[str, float]) -> list[JobSpec]:
    """The jobs under the names that their owners declare. `speeds` has a factor for every tenant that does not tell the truth."""
    return [replace(spec, model=declared_model(spec)) if spec.tenant in speeds else spec for spec in jobs]


def declared_model(spec: JobSpec) -> str:
    return f"{spec.model} as declared by {spec.tenant}"


def declared_profile(
    profile: Profile, jobs: Sequence[JobSpec], speeds: Mapping[str, float], gpus: Iterable[str]
) -> Profile:
    """The profile with the models that these tenants declare, on these GPU types.

    A declared model has the factor of its tenant times its true speed on every type but its slowest.
    """
    types = list(gpus)
    models = {(spec.model, declared_model(spec)): speeds[spec.tenant] for spec in jobs if spec.tenant in speeds}
    for (model, name), factor in models.items():
        profile = _with_model(profile, model, name, factor, types)
    return profile


def _with_model(profile: Profile, model: str, name: str, factor: float, types: Sequence[str]) -> Profile:
    speed = {gpu: profile.samples_per_s(model, gpu, 1) for gpu in types}
    slowest = min((gpu for gpu in types if speed[gpu] > 0), key=speed.__getitem__, default=None)

    def factor_on(gpu: str) -> float:
        return 1.0 if gpu == slowest else factor

    rows = [
        replace(row, model=name, steps_per_s=row.steps_per_s * factor_on(row.gpu))
        for row in profile.speeds
        if row.model == model
    ]
    parts = {(name, gpu): _faster(parts, factor_on(gpu)) for (m, gpu), parts in profile.parts.items() if m == model}
    facts = {name: profile.facts_of(model)} if model in profile.facts else {}
    return replace(
        profile,
        speeds=(*profile.speeds, *rows),
        parts={**profile.parts, **parts},
        facts={**profile.facts, **facts},
    )


def _faster(parts: Parts, factor: float) -> Parts:
    return replace(parts, **{name: getattr(parts, name) / factor for name in _TIMES})
