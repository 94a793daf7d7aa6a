"""The simulator as a world of the contract: time is virtual, and all jobs are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping

from engine_world import CLUSTER, SPEEDS, Does, World, spec_of

from fairlead.model.lifecycle import Phase
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.truth import Truth
from fairlead.sim.truth import World as Hidden


class SimulatedWorld(World):
    """Time is virtual, and all jobs are known beforehand: they are the trace."""

    name = "simulated"
    lacks: Mapping[str, str] = {
        "fail": "a trace has no jobs that fail; what is left of a failure is its length",
        "deaf": "a simulated job always gives its GPUs back",
        "refuse": "a simulated command is always carried out",
        "sight": "a simulated job is always seen",
        "restart": "a simulation is one process that starts from nothing",
        "requests": "arrivals come from the trace, and nobody asks for anything else",
        "progress": "its reports are exact, so that it reports changes only",
        "runner": "it has no leases",
    }

    def __init__(self, jobs: tuple[str, ...] = ("a", "b"), node_dies_after_s: float | None = None) -> None:
        super().__init__()
        rates = TableEstimator(SPEEDS, CLUSTER)
        specs = tuple(spec_of(id_, 1) for id_ in jobs)
        hidden = Hidden(mtbf_s=2.0, repair_s=1.0, checkpoint_s=0.5, seed=1) if node_dies_after_s else Hidden()
        self.engine = SimEngine(Truth(specs, CLUSTER, rates, hidden))
        self.state = State(CLUSTER, rates)
        self._running: set[str] = set()

    def add(self, id_: str, does: Does, *, gpus: int = 1, max_retries: int = 0) -> None:
        assert does in (Does.TRAIN, Does.END), self.lacks
        while id_ not in self.state.position:
            self.wait(0.0)

    def alive(self, id_: str) -> int:
        return int(self.phase(id_) is Phase.RUNNING)
