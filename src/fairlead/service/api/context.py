"""The objects that handlers share."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import Estimator
from fairlead.rounds.journal import cluster_from_json
from fairlead.service.api.access import allowed
from fairlead.service.api.limits import Limits
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.api.turns import Turns
from fairlead.service.live_policies import PolicyCard
from fairlead.service.store.checkpoint_sizes import StoredCheckpoints
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.reads import Reads
from fairlead.service.store.tokens import Token, Tokens
from fairlead.service.store.writer import Writer


@dataclass(frozen=True)
class ServiceContext:
    """The state of the API process, apart from its web server."""

    directory: StateDirectory
    first_cluster: Cluster  # at the first start
    first_estimator: Estimator
    writer: Writer
    tokens: Tokens
    reads: Reads
    limits: Limits = field(default_factory=Limits)
    scheduler: Callable[[], SchedulerState] = SchedulerState  # state of the scheduler process
    took_s: Callable[[float], float | None] = lambda at_s: None  # how long the decision of that time took
    policy_files: Sequence[str] = ()  # of the operator
    own_policies: Mapping[str, PolicyCard] = field(default_factory=dict)  # what they contain
    steers: bool = False  # its jobs belong to Slurm: they are submitted and cancelled there
    only_watches: bool = False  # another scheduler runs the cluster: nothing can be submitted or changed
    metrics: Callable[[], str] = str  # the document of a scrape
    metrics_port: int | None = None  # of a loopback address, on which metrics need no token
    no_estimates: str | None = None  # why this service makes no start estimates; None: it makes them
    patience_s: float = 2.0  # how long a response waits for the scheduler to take the change
    auditing: asyncio.Lock = field(default_factory=asyncio.Lock)  # one audit at a time, because each is a process
    explaining: Turns = field(init=False)  # explanations, one at a time
    looking_back: Turns = field(init=False)  # at earlier states of the cluster, one at a time
    streams: dict[str, int] = field(default_factory=dict)  # token -> open streams
    hardware: dict[str, tuple[Cluster, Estimator]] = field(default_factory=dict)  # as last read
    checkpoints: StoredCheckpoints = field(init=False)  # bytes by tenant

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoints", StoredCheckpoints(self.reads))
        object.__setattr__(self, "explaining", Turns(self.limits))
        object.__setattr__(self, "looking_back", Turns(self.limits))

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        return self._hardware()[0]

    @property
    def estimator(self) -> Estimator:
        return self._hardware()[1]

    def _hardware(self) -> tuple[Cluster, Estimator]:
        line = self.reads.cluster_line()
        if line is None:
            return self.first_cluster, self.first_estimator
        if line not in self.hardware:
            cluster = cluster_from_json(json.loads(line))
            self.hardware.clear()
            self.hardware[line] = (cluster, self.first_estimator.for_cluster(cluster))
        return self.hardware[line]

    def still_valid(self, caller: Token) -> bool:
        """Whether the token is still valid, for streams that outlive the check at their start."""
        token = self.tokens.get(caller.id)
        return token is not None and token.valid_at(time.time())

    async def until_taken(self, number: int) -> bool:
        """Whether the scheduler has taken this request; waits for at most `patience_s`."""
        give_up_s = time.monotonic() + self.patience_s
        while self.reads.taken() < number:
            if time.monotonic() > give_up_s:
                return False
            await asyncio.sleep(0.02)
        return True


async def service_of(request: Request) -> ServiceContext:
    service: ServiceContext = request.app.state.service
    return service


Caller = Annotated[Token, Depends(allowed)]
Service = Annotated[ServiceContext, Depends(service_of)]
