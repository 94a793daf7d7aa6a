"""How the rates that policies see are known, for people who want to check them."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.rounds.speeds import group_of, rate_sources
from fairlead.rounds.state import State


@dataclass(frozen=True, slots=True)
class KnownFactor:
    """How the rate of a tenant's model on a type is known: measured, profiled, completed or assumed."""

    tenant: str
    model: str
    type: str
    source: str
    factor: float  # the rate that policies see / the table's rate
    confidence: float  # of the measurement


def known_factors(state: State) -> tuple[KnownFactor, ...]:
    """How the rates of every tenant's models are known, by type; those of the newest job of each."""
    newest = {group_of(state, j): j for j in range(state.jobs)}
    names, known = list(state.tenants), list[KnownFactor]()
    for group, j in sorted(newest.items()):
        factor, confidence = state.measured.factor(group), state.measured.confidence(group)
        for t, source in enumerate(rate_sources(state, j)):
            if state.best_rate[j, t] > 0:
                known.append(
                    KnownFactor(
                        tenant=names[group[0]],
                        model=state.specs[j].model,
                        type=state.cluster.types[t],
                        source=source.value,
                        factor=1.0 if factor is None else float(factor[t]),
                        confidence=float(confidence[t]),
                    )
                )
    return tuple(known)
