"""Turns decided starts into leases as soon as possible."""

from __future__ import annotations

from collections import Counter

from fairlead.engines import endings
from fairlead.engines.fleet import Live
from fairlead.engines.grants import choose_slots, has_room, with_tasks, without_slots
from fairlead.engines.leases import Gpu, Lease
from fairlead.engines.runner import LaunchError
from fairlead.engines.situation import Situation, Start
from fairlead.model.allocation import Spot
from fairlead.model.lifecycle import Phase


def decided(s: Situation, j: int, spot: Spot) -> None:
    s.starts[j] = Start(int(s.state.leases[j]), spot)


def launch(s: Situation) -> None:
    """Launch the starts that are in the log, whose GPUs are available and whose job has nothing else running."""
    if not s.starts:
        return
    room = _Room(s)
    for j, start in list(s.starts.items()):
        if s.state.phase[j] != Phase.STARTING or s.fleet.of(j):
            continue
        gpus = room.choose(start.spot)
        if gpus is not None and _launch_one(s, j, start.number, with_tasks(s.state, j, gpus)):
            room.give(gpus)


def ask_to_stop(s: Situation, j: int) -> None:
    for live in s.fleet.of(j):
        s.fleet.ask(live, s.now_s)


class _Room:
    """The GPUs that a lease can have now, by the capabilities of the engine."""

    def __init__(self, s: Situation) -> None:
        self._state = s.state
        self._capabilities = s.runner.capabilities
        self._taken: set[tuple[str, int | None]] = set()
        self._used = Counter[str]()
        if self._capabilities.queues:
            return
        if self._capabilities.picks_devices:
            self._used = s.fleet.used()
        else:
            self._taken = s.fleet.taken()

    def choose(self, spot: Spot) -> tuple[Gpu, ...] | None:
        """GPUs for the spot; None while they are in use."""
        if not self._capabilities.picks_devices:
            return choose_slots(self._state, spot, self._taken)
        # An engine that queues starts it when the GPUs are free; decisions never count on more than there are.
        if self._capabilities.queues or has_room(self._state, spot, self._used):
            return without_slots(self._state, spot)
        return None

    def give(self, gpus: tuple[Gpu, ...]) -> None:
        self._taken |= {(gpu.node, gpu.slot) for gpu in gpus}
        self._used.update(gpu.node for gpu in gpus)


def _launch_one(s: Situation, j: int, number: int, gpus: tuple[Gpu, ...]) -> bool:
    id_ = s.state.specs[j].id
    story = s.fleet.story(j, id_, number - 1)
    if story is None:
        return False  # whether it has finished cannot be known yet
    del s.starts[j]
    if story.finished:  # by itself, while it was taken off a node
        endings.finished(s, j, story.report)
        return False
    tenant = s.state.specs[j].tenant
    lease = Lease(id_, number, gpus, s.command_of(id_), story.failures, tenant, s.log_bytes(tenant))
    try:
        s.runner.launch(lease)
    except LaunchError as error:
        endings.refused(s, j, lease, str(error))
        return False
    s.fleet.add(Live(lease, j, s.now_s, s.outbox.safe(j), launched_s=s.now_s))
    return True
