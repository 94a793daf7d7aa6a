"""What can be bought and retired, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.model.cluster import Cluster, NodeGroup, with_node, without_node
from fairlead.model.errors import InputError
from fairlead.model.words import counted, did_you_mean

MONEY, NODES, GPUS = "money", "nodes", "GPUs"  # units of a budget
SAME = 1e-9  # relative: prices that differ by rounding only


@dataclass(frozen=True, slots=True)
class Offer:
    """A node that can be bought, with its price in the unit of the budget."""

    gpu: str
    gpus: int
    price: float

    @property
    def name(self) -> str:
        return f"{self.gpus}x{self.gpu}"

    @property
    def group(self) -> NodeGroup:
        return NodeGroup(1, self.gpu, self.gpus)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A change of the cluster: nodes that are bought, and types whose nodes are all retired."""

    bought: tuple[tuple[Offer, int], ...] = ()  # in the order of the offers
    retired: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        parts = [f"buy {count}x{offer.name}" for offer, count in self.bought]
        return ", ".join([*parts, *(f"retire {type_}" for type_ in self.retired)]) or "as it is"

    def count(self, offer: Offer) -> int:
        return dict(self.bought).get(offer, 0)


@dataclass(frozen=True)
class Market:
    """What can be bought within the budget, and what retired types bring in. Prices are given, never assumed."""

    offers: tuple[Offer, ...]
    budget: float
    unit: str = MONEY
    resale: Mapping[str, float] = field(default_factory=dict)  # type -> what all its nodes bring in

    def __post_init__(self) -> None:
        if not self.offers:
            raise InputError("nothing can be bought; name types with --price TYPE=MONEY or --buy [GPUSx]TYPE")
        if not any(offer.price <= self.budget * (1 + SAME) for offer in self.offers) and not self.resale:
            least = min(self.offers, key=lambda offer: offer.price)
            raise InputError(
                f"the budget of {self.budget:,g} {self.unit} buys nothing: the cheapest node is {least.name} for "
                f"{least.price:,g}; raise --budget"
            )

    def cost(self, fleet: FleetPlan) -> float:
        """What is spent, less what the retired nodes bring in."""
        spent = sum(offer.price * count for offer, count in fleet.bought)
        return spent - sum(self.resale.get(type_, 0.0) for type_ in fleet.retired)

    def affordable(self, fleet: FleetPlan, offer: Offer) -> int:
        """How many nodes of the offer the rest of the budget buys."""
        left = self.budget - self.cost(fleet)
        return max(int((left + SAME * max(self.budget, 1.0)) / offer.price), 0)

    def with_more(self, fleet: FleetPlan, offer: Offer, count: int) -> FleetPlan:
        counts = {one: fleet.count(one) + (count if one == offer else 0) for one in self.offers}
        return FleetPlan(tuple((one, number) for one, number in counts.items() if number), fleet.retired)


def changed_cluster(cluster: Cluster, fleet: FleetPlan) -> Cluster:
    """The cluster with the nodes that are bought and without those that are retired. Positions stay as they are."""
    for node in [node for type_ in fleet.retired for node in nodes_of(cluster, type_)]:
        cluster = without_node(cluster, node)
    for name, group in new_nodes(cluster, fleet):
        cluster = with_node(cluster, name, group)
    return cluster


def new_nodes(cluster: Cluster, fleet: FleetPlan) -> list[tuple[str, NodeGroup]]:
    """The names and GPUs of the nodes that are bought."""
    return [
        (f"bought-{offer.name}-{number}", offer.group)
        for offer, count in fleet.bought
        for number in range(1, count + 1)
    ]


def nodes_of(cluster: Cluster, type_: str) -> tuple[int, ...]:
    """The nodes of a type that have GPUs."""
    if type_ not in cluster.types:
        raise InputError(f'the cluster has no type "{type_}"; {did_you_mean(type_, cluster.types)}')
    return cluster.nodes_of[cluster.types.index(type_)]


def present_types(cluster: Cluster) -> list[str]:
    """The types that have nodes."""
    return [type_ for type_, gpus in zip(cluster.types, cluster.capacity.tolist(), strict=True) if gpus]


def freed_text(cluster: Cluster, retired: Sequence[str]) -> str:
    """What retiring these types frees: `3 nodes, 12 GPUs`."""
    nodes = [node for type_ in retired for node in nodes_of(cluster, type_)]
    return f"{counted(len(nodes), 'node')}, {counted(int(cluster.node_gpus[nodes].sum()), 'GPU')}"
