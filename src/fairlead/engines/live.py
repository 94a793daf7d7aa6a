"""The live engine, for all runners. It waits for requests and for changes of leases, and reports them as events.

Events follow facts: a job is stopped, held or cancelled when its processes are gone and their GPUs are free. A start
waits until its decision is in the log, so that after a crash the log and the runner's record of leases together show
what has happened (`resuming`).

    starting   decided starts -> leases        watching   looks -> events          nodes      drained, silent, back
    wishes     requests -> events and stops    endings    how jobs come off GPUs   resuming   after a restart
    forgetting jobs that have ended            pausing    before a job is tried again
    renumbering leases that the log lacks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fairlead.engines import endings, pausing, renumbering, starting, watching, wishes
from fairlead.engines.fleet import Fleet
from fairlead.engines.forgetting import forget_ended
from fairlead.engines.leases import Key
from fairlead.engines.outbox import Outbox
from fairlead.engines.requests import Command, Inbox
from fairlead.engines.resuming import resume
from fairlead.engines.runner import KeepsStandbys, Runner
from fairlead.engines.situation import Situation
from fairlead.model.arrays import IntArray
from fairlead.model.decision import Decision
from fairlead.model.events import Event, Renumbered
from fairlead.rounds.state import State

_SAME_INSTANT_S = 0.25  # a wake-up this late counts as punctual, so that rounds begin at their multiples


class LiveEngine:
    """Implements the loop's `Engine` over a runner. `clock` returns seconds since the state's origin.

    `drained` are the nodes that an operator took out of service before a restart; None means all that are down.
    `learns_restarts` is false if the operator has set what restarts cost. `lease_floor` returns the number after which
    the leases of a job are counted, if earlier ones may be missing in the log.
    """

    def __init__(
        self,
        state: State,
        runner: Runner,
        inbox: Inbox,
        command_of: Callable[[str], Command],
        clock: Callable[[], float],
        *,
        progress_s: float = 10.0,
        drained: Iterable[str] | None = None,
        learns_restarts: bool = True,
        log_bytes: Callable[[str], int | None] = lambda tenant: None,
        lease_floor: Callable[[str], int] = lambda job: 0,
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._progress_s = progress_s
        self._looked_s = -math.inf  # by the clock
        self._over = False
        # After a restart: a job whose cancellation was taken before must not be launched again.
        self._requests_first = False
        down = {name for name, up in zip(state.cluster.nodes, state.node_up.tolist(), strict=True) if not up}
        closed = down if drained is None else down & set(drained)
        self._situation = Situation(
            state,
            runner,
            command_of,
            Outbox(state),
            Fleet(runner),
            state.now_s,
            drained=closed,
            silent=down - closed,
            learns_restarts=learns_restarts,
            log_bytes=log_bytes,
            lease_floor=lease_floor,
        )

    def now(self) -> float:
        return self._situation.now_s

    def wait(self, until_s: float) -> list[Event] | None:
        s = self._situation
        s.outbox.clear_folded()
        if self._over:
            self._over = False
            return None
        trouble = s.trouble
        while True:
            self._advance()
            if self._requests_first:
                requests = self._inbox.take(0.0)
            else:
                pausing.end_due(s)
                starting.launch(s)
                self._look_if_due()
                requests = self._inbox.take(0.0 if s.outbox.waiting else self._rest_s(until_s))
            self._requests_first = False
            self._advance()
            if requests is None:
                self._over = s.outbox.waiting  # deliver these events first, then end
                return s.outbox.take() or None
            for request in requests:
                self._over |= wishes.take(s, request)
            if s.outbox.waiting:
                return s.outbox.take()
            if s.trouble != trouble:
                return []  # the caller reports it
            if self._clock() >= until_s:
                if s.now_s - until_s < _SAME_INSTANT_S:
                    s.now_s = max(until_s, s.state.now_s)
                return []

    def apply(self, decision: Decision) -> None:
        s = self._situation
        s.outbox.clear_folded()
        self._advance()
        for j in decision.stop.tolist():
            pending = s.starts.pop(j, None)
            if pending is not None and s.fleet.current(j) is None:
                endings.stopped(s, j, s.outbox.safe(j))  # it was never launched
            starting.ask_to_stop(s, j)
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            if j not in s.wishes:
                starting.decided(s, j, spot)
        starting.launch(s)

    def warm_figures(self) -> dict[str, int] | None:
        """Numbers about processes that wait for leases; None if the runner has none."""
        runner = self._situation.runner
        return runner.warm_figures() if isinstance(runner, KeepsStandbys) else None

    @property
    def trouble(self) -> str:
        """Why the runner could not be reached at the last look; empty if it was."""
        return self._situation.trouble

    def forget_ended(self, forget: Callable[[IntArray], None]) -> None:
        """Forget the jobs that have ended and of which nothing runs; `forget` journals and folds it."""
        self._situation.outbox.clear_folded()
        forget_ended(self._situation, forget)

    def renumbered(self) -> Renumbered | None:
        """The event with which the log begins after a restart if leases are missing in it; fold it, then `resume`."""
        self._advance()
        return renumbering.renumbered(self._situation)

    def resume(self, strangers: Sequence[str] = ()) -> list[Key]:
        """Adopt running leases and continue decided starts, after a restart.

        `strangers` are jobs that may have leases although the log does not contain them. Those of their leases that run
        are returned; they are stopped.
        """
        self._advance()
        running = renumbering.stop_strangers(self._situation, list(strangers))
        resume(self._situation)
        self._requests_first = True
        return running

    def _advance(self) -> None:
        """Advance the time, which never runs backwards, whatever the machine's clock does."""
        s = self._situation
        s.now_s = max(s.now_s, s.state.now_s, self._clock())

    def _look_if_due(self) -> None:
        """Look at the leases, but not more often than the runner allows: it may be a call to a busy controller."""
        if self._look_in_s() <= 0:
            self._looked_s = self._clock()
            watching.watch(self._situation, self._progress_s)

    def _look_in_s(self) -> float:
        since_s = abs(self._clock() - self._looked_s)  # the machine's clock may be set back
        return self._situation.runner.capabilities.look_s - since_s

    def _rest_s(self, until_s: float) -> float:
        """Seconds until something other than a request needs attention."""
        s = self._situation
        left_s = min(max(until_s - self._clock(), 0.0), pausing.next_s(s))
        if not (s.fleet or s.starts or s.runner.capabilities.looks_idle):
            return left_s
        return min(left_s, max(self._look_in_s(), 0.0))
