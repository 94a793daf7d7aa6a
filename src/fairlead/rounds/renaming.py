"""A stored state under other names: of jobs, tenants, nodes and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import Profile
from fairlead.rounds.snapshot import rewrite
from fairlead.rounds.state import State


@dataclass(frozen=True)
class NewNames:
    """The new name for each old one, by kind of thing."""

    jobs: Mapping[str, str]
    tenants: Mapping[str, str]
    nodes: Mapping[str, str]
    models: Mapping[str, str]


def numbered_names(state: State, profile: Profile) -> NewNames:
    """Names such as `tenant-1`, which sort as the old ones did, because ties are broken by name."""
    models = {
        *profile.models,
        *profile.facts,
        *(spec.model for spec in state.specs),
        *state.labels.model_names().values(),
    }
    models |= {model for model, _ in state.restart_costs}
    return NewNames(
        jobs=_numbered("job", (spec.id for spec in state.specs)),
        tenants=_numbered("tenant", {*state.tenants, *state.given_weight}),
        nodes=_numbered("node", {*state.cluster.nodes, *state.nodes.first.nodes}),
        models=_numbered("model", models),
    )


def renamed_cluster(cluster: Cluster, names: NewNames) -> Cluster:
    return replace(cluster, nodes=tuple(names.nodes[node] for node in cluster.nodes))


def renamed_profile(profile: Profile, names: NewNames) -> Profile:
    """The same speeds under other names, without where they come from: sources are texts of the operator."""
    models = names.models
    return Profile(
        "anonymous",
        tuple(replace(row, model=models[row.model], source=_kind_of(row.source)) for row in profile.speeds),
        {models[model]: facts for model, facts in profile.facts.items()},
        {(models[model], gpu): replace(parts, source="") for (model, gpu), parts in profile.parts.items()},
        {gpu: replace(links, source="") for gpu, links in profile.links.items()},
    )


def renamed_snapshot(body: bytes, names: NewNames) -> bytes:
    """The snapshot of a state under other names; texts about failed starts and ends are left out."""

    def rename(facts: dict[str, Any]) -> dict[str, Any]:
        types, nodes, *sizes = facts["cluster"]
        learnt, labels = facts["learnt"], facts["labels"]
        return {
            **facts,
            "cluster": [types, [names.nodes[node] for node in nodes], *sizes],
            "cluster_now": {
                **facts["cluster_now"],
                "nodes": [names.nodes[node] for node in facts["cluster_now"]["nodes"]],
            },
            "jobs": [_renamed_row(row, names) for row in facts["jobs"]],
            "labels": {
                **labels,
                "models": [[names.models[model], number] for model, number in labels["models"]],
                "kinds": [
                    [names.tenants[tenant], names.models[model], *rest] for tenant, model, *rest in labels["kinds"]
                ],
            },
            "tenants": [names.tenants[tenant] for tenant in facts["tenants"]],
            "given_weight": {names.tenants[tenant]: weight for tenant, weight in facts["given_weight"].items()},
            "pauses": {j: [until_s, ""] for j, (until_s, _) in facts["pauses"].items()},
            "departures": {j: _renamed_departure(row, names) for j, row in facts["departures"].items()},
            "restart_costs": [[names.models[model], *costs] for model, *costs in facts["restart_costs"]],
            "learnt": learnt
            and {**learnt, "jobs": [[job, names.models[model], *rest] for job, model, *rest in learnt["jobs"]]},
        }

    return rewrite(body, rename)


def _renamed_row(row: list[Any], names: NewNames) -> list[Any]:
    columns = dict(zip(JobSpec.__slots__, row, strict=False))  # older rows lack the last fields
    columns["id"], columns["tenant"] = names.jobs[columns["id"]], names.tenants[columns["tenant"]]
    columns["model"] = names.models[columns["model"]]
    return list(columns.values())


def _renamed_departure(row: list[Any], names: NewNames) -> list[Any]:
    """How a job came off its GPUs, without the engine's words and without jobs that the state has forgotten."""
    time_s, how, _, taken_by, gain = row
    return [time_s, how, "", [names.jobs[id_] for id_ in taken_by if id_ in names.jobs], gain]


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    ordered = sorted(set(names))
    digits = len(str(len(ordered)))
    return {name: f"{kind}-{number:0{digits}}" for number, name in enumerate(ordered, start=1)}


def _kind_of(source: str) -> str:
    """`estimate:` and `completed:` mark numbers that were not measured."""
    word = source.partition(":")[0]
    return f"{word}:" if word in ("estimate", "completed") else "anonymous"
