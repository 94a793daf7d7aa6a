"""The live engine: what all runners need. It waits for requests and for what leases do, and tells the loop as events.

Events follow deeds: a job is stopped, held or cancelled when its processes are gone and their GPU slots are free. A start
waits for both, and for its decision to be in the log: a launch never precedes what it follows from, so that after a crash
the log and the leases' own files tell together what has happened (`resume`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.engines.fleet import Fleet, Live, is_failure
from fairlead.engines.grants import believed_rate, choose_slots, with_tasks
from fairlead.engines.leases import Condition, Gpu, LaunchError, Lease, Report, Runner, Sight
from fairlead.engines.progress import believed, kept, measure, samples_of
from fairlead.engines.requests import (
    Cancel,
    Command,
    Drain,
    Hold,
    Inbox,
    Release,
    Request,
    Resume,
    SetPolicy,
    SetTenant,
    Submit,
)
from fairlead.engines.telling import Telling
from fairlead.model import events as ev
from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.decision import Decision
from fairlead.model.lifecycle import ENDED, HAS_GPUS, Phase
from fairlead.rounds.state import State

POLL_S = 0.15  # between two looks at leases that exist; without any nothing is polled
CLAIM_S = 30.0  # a lease that nobody has claimed by then is taken back
MOST_REFUSALS = 3  # in a row; then the job fails
_SAME_INSTANT_S = 0.25  # woken up this late counts as in time, so that rounds begin at their multiples


@dataclass(frozen=True, slots=True)
class _Start:
    """Decided, and not launched yet."""

    number: int
    spot: Spot
    not_before_s: float


class LiveEngine:
    """Implements the loop's `Engine` over a runner. `clock` gives seconds from the state's origin.

    `drained` names the nodes that an operator took out of service before a restart; None: all that are down.
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
    ) -> None:
        self._state = state
        self._runner = runner
        self._inbox = inbox
        self._command_of = command_of
        self._clock = clock
        self._progress_s = progress_s
        self._now_s = state.now_s
        self._tell = Telling(state)
        self._fleet = Fleet(runner)
        self._starts: dict[int, _Start] = {}  # by job; in the order in which they were decided
        self._wishes: dict[int, type[Hold] | type[Cancel] | type[Release]] = {}  # Release: hold, then release
        self._refusals: dict[int, int] = {}
        nodes = state.cluster.nodes
        self._node = {name: n for n, name in enumerate(nodes)}
        down = {name for n, name in enumerate(nodes) if not state.node_up[n]}
        self._drained = down if drained is None else down & set(drained)
        self._silent = down - self._drained  # nodes that do not answer, as the runner says
        self._over = False

    # ---- the loop's side ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._now_s

    def wait(self, until_s: float) -> list[ev.Event] | None:
        self._tell.heard()
        if self._over:
            self._over = False
            return None
        while True:
            self._advance()
            self._launch()
            self._watch()
            left_s = max(until_s - self._clock(), 0.0)
            busy = bool(self._fleet or self._starts)
            requests = self._inbox.take(0.0 if self._tell.waiting else min(left_s, POLL_S) if busy else left_s)
            self._advance()
            if requests is None:
                self._over = self._tell.waiting  # these first, then the end
                return self._tell.out() or None
            for request in requests:
                self._take(request)
            if self._tell.waiting:
                return self._tell.out()
            if self._clock() >= until_s:
                if self._now_s - until_s < _SAME_INSTANT_S:
                    self._now_s = max(until_s, self._state.now_s)
                return []

    def apply(self, decision: Decision) -> None:
        self._tell.heard()
        self._advance()
        for j in decision.stop.tolist():
            pending = self._starts.pop(j, None)
            if pending is not None and self._fleet.current(j) is None:
                self._say_stopped(j, self._tell.done(j))  # it was never launched
            self._ask(j)
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            if j not in self._wishes:
                wait_s = 2.0 ** (self._refusals[j] - 1) if j in self._refusals else 0.0
                self._starts[j] = _Start(int(self._state.leases[j]), spot, self._now_s + wait_s)
        self._launch()

    def resume(self) -> None:
        """After a restart: adopt what runs, take back what was never claimed, and go on with what was decided."""
        self._advance()
        phases = self._state.phase[: self._state.jobs]
        begun = (self._state.leases[: self._state.jobs] > 0) & ~np.isin(phases, ENDED)
        for j in np.flatnonzero(begun).tolist():
            self._resume_job(j, Phase(int(phases[j])))

    def _advance(self) -> None:
        """Time never runs backwards, whatever the machine's clock does."""
        self._now_s = max(self._now_s, self._state.now_s, self._clock())

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        """Asking twice, or for what is over, changes nothing: after a restart requests may come again."""
        match request:
            case Submit(spec, _):
                if self._tell.position(spec.id) is None:
                    self._tell.arrived(ev.Arrived(self._now_s, replace(spec, arrival_s=self._now_s)))
            case Cancel(job) | Hold(job) | Release(job):
                j = self._tell.position(job)
                if j is not None and self._tell.phase(j) not in ENDED:
                    self._wish(j, type(request))
            case Drain(node):
                self._drained.add(node)
                self._take_down(node)
            case Resume(node):
                self._drained.discard(node)
                self._bring_up(node)
            case SetTenant(tenant, weight, quotas):
                self._tell.say(ev.TenantSet(self._now_s, tenant, weight, quotas))
            case SetPolicy(policy, parameters):
                self._tell.say(ev.PolicySet(self._now_s, policy, parameters))
                self._over = True

    def _wish(self, j: int, wish: type[Hold] | type[Cancel] | type[Release]) -> None:
        phase, old = self._tell.phase(j), self._wishes.get(j)
        if wish is Release:
            if phase is Phase.HELD:
                self._tell.say(ev.Released(self._now_s, _one(j)))
            elif old is Hold:
                self._wishes[j] = Release
            return
        if old is Cancel or (wish is Hold and phase is Phase.HELD):
            return
        self._wishes[j] = wish
        self._starts.pop(j, None)
        self._ask(j)
        self._grant_wish(j)

    def _grant_wish(self, j: int) -> None:
        """Once nothing of the job runs."""
        if j not in self._wishes or self._fleet.of(j):
            return
        wish = self._wishes.pop(j)
        if wish is Cancel:
            self._tell.say(ev.Cancelled(self._now_s, _one(j)))
            return
        self._tell.say(ev.Held(self._now_s, _one(j), _value(self._tell.done(j))))
        if wish is Release:
            self._tell.say(ev.Released(self._now_s, _one(j)))

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _take_down(self, node: str) -> None:
        """Its jobs are lost to the loop at once, whereas their processes may still write a checkpoint if they can."""
        n = self._node.get(node)
        if n is None or not self._tell.node_up(n):
            return
        self._tell.say(ev.NodeDown(self._now_s, n))
        for j in self._tell.jobs_on(n):
            live = self._fleet.current(j)
            safe = self._tell.done(j)
            if live is not None:
                safe = kept(self._state, live, self._fleet.sight(live.lease), self._now_s)
                live.dropped = True
                self._fleet.ask(live, self._now_s)
            self._say_lost(j, safe)

    def _give_up(self, node: str) -> None:
        """Nobody waits for what stood on a node that does not answer; it is killed as far as it can be reached."""
        self._take_down(node)
        for live in self._fleet.on(node):
            live.astray = True
            self._fleet.kill(live, self._now_s)
            if not live.dropped:  # the loop has given its GPUs to others and waits for its end
                live.dropped = True
                self._say_gone(live, kept(self._state, live, self._fleet.sight(live.lease), self._now_s))
            self._grant_wish(live.job)

    def _bring_up(self, node: str) -> None:
        n = self._node.get(node)
        if n is not None and not self._tell.node_up(n) and node not in self._drained | self._silent:
            self._tell.say(ev.NodeUp(self._now_s, n))

    # ---- starting and stopping ---------------------------------------------------------------------------------------

    def _launch(self) -> None:
        """Starts whose job has nothing else running, whose slots are free and which the log knows of."""
        if not self._starts:
            return
        taken = self._fleet.taken()
        for j, start in list(self._starts.items()):
            if self._state.phase[j] != Phase.STARTING or self._fleet.of(j) or self._now_s < start.not_before_s:
                continue
            gpus = choose_slots(self._state, start.spot, taken)
            if gpus is not None:
                del self._starts[j]
                if self._launch_one(j, start.number, with_tasks(self._state, j, gpus)):
                    taken |= {(gpu.node, gpu.slot) for gpu in gpus}

    def _launch_one(self, j: int, number: int, gpus: tuple[Gpu, ...]) -> bool:
        id_ = self._state.specs[j].id
        failures, finished = self._fleet.story(id_, number - 1)
        if finished:  # by itself, while it was taken off a node
            self._say_finished(j, None)
            return False
        lease = Lease(id_, number, gpus, self._command_of(id_), failures)
        try:
            self._runner.launch(lease)
        except LaunchError as error:
            self._refuse(j, str(error))
            return False
        self._fleet.add(Live(lease, j, self._now_s, self._tell.done(j)))
        return True

    def _refuse(self, j: int, reason: str) -> None:
        self._refusals[j] = self._refusals.get(j, 0) + 1
        if self._refusals[j] < MOST_REFUSALS:
            self._tell.say(ev.Refused(self._now_s, _one(j), reason))
        else:
            del self._refusals[j]
            self._tell.say(ev.Failed(self._now_s, _one(j), f"could not be started {MOST_REFUSALS} times: {reason}"))

    def _ask(self, j: int) -> None:
        for live in self._fleet.of(j):
            self._fleet.ask(live, self._now_s)

    # ---- what leases do ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        look = self._fleet.look()
        for node in sorted(look.down - self._silent):
            self._silent.add(node)
            self._give_up(node)
        for node in sorted(self._silent - look.down):
            self._silent.discard(node)
            self._bring_up(node)
        for key, sight in look.sights.items():
            live = self._fleet[key]
            if sight.condition is Condition.RUNNING:
                self._see_running(live, sight)
            elif sight.condition is Condition.NEVER_CLAIMED:
                self._see_unclaimed(live, sight)
            else:
                self._see_end(live, sight)

    def _see_running(self, live: Live, sight: Sight) -> None:
        self._refusals.pop(live.job, None)
        self._say_started(live)
        if live.asked_s is not None:
            if self._now_s >= live.asked_s + live.lease.command.grace_s:
                self._fleet.kill(live, self._now_s)
            else:
                self._fleet.ask(live, self._now_s)  # it may have come up only after it was asked
        elif sight.report is not None:
            seen = measure(self._state, live, sight.report, self._progress_s)
            if seen is not None:
                self._tell.say(ev.Progress(self._now_s, _one(live.job), _value(seen[0]), _value(seen[1])))

    def _see_unclaimed(self, live: Live, sight: Sight) -> None:
        if live.asked_s is None and self._now_s < live.since_s + CLAIM_S:
            return
        if self._runner.revoke(live.lease.key):
            if live.asked_s is None and not live.dropped:
                self._fleet.remove(live)
                self._refuse(live.job, f"nothing came up within {CLAIM_S:g} s")
            else:
                self._see_end(live, sight)

    def _see_end(self, live: Live, sight: Sight) -> None:
        self._fleet.remove(live)
        if not live.dropped:
            if sight.condition is Condition.ENDED:
                self._say_started(live)  # it was over before we looked
            self._say_end(live, sight)
        self._grant_wish(live.job)

    def _say_started(self, live: Live) -> None:
        j = live.job
        if live.told or live.dropped or self._tell.phase(j) is not Phase.STARTING:
            return
        live.told = True
        rate = believed_rate(self._state, j, self._state.spots[j])
        ran = not math.isnan(self._state.first_start_s[j])
        resume_s = self._now_s + (float(self._state.restart_s[j]) if ran else 0.0)
        self._tell.say(ev.Started(self._now_s, _one(j), _value(rate), _value(resume_s), measured=False))

    def _say_end(self, live: Live, sight: Sight) -> None:
        j, failures = live.job, live.lease.failures
        asked = live.asked_s is not None or sight.asked
        if sight.code == 0:
            self._say_finished(j, sight.report)
        elif not asked and is_failure(sight) and failures >= live.lease.command.max_retries:
            self._forget(j)
            tried = f" after {failures + 1} attempts" if failures else ""
            self._tell.say(ev.Failed(self._now_s, _one(j), f"exit code {sight.code}{tried}"))
        else:
            self._say_gone(live, kept(self._state, live, sight, self._now_s))

    def _say_gone(self, live: Live, safe: float) -> None:
        """Neither done nor failed. What was asked for has happened; all else is a loss."""
        j = live.job
        if j in self._wishes:
            self._tell.keep(j, safe)  # the wish is granted by what follows
        elif live.asked_s is not None and self._tell.phase(j) in (Phase.STOPPING, Phase.MOVING):
            self._say_stopped(j, safe)
        else:
            self._say_lost(j, safe)

    def _say_stopped(self, j: int, safe: float) -> None:
        self._tell.say(ev.Stopped(self._now_s, _one(j), _value(safe)))

    def _say_lost(self, j: int, safe: float) -> None:
        self._starts.pop(j, None)
        self._tell.say(ev.Lost(self._now_s, _one(j), _value(safe)))

    def _say_finished(self, j: int, report: Report | None) -> None:
        self._forget(j)
        done = None if report is None else samples_of(self._state, j, report.step, report.samples)
        if done is None:
            total = float(self._state.total[j])
            done = believed(self._state, j, self._now_s) if math.isnan(total) else total
        self._tell.say(ev.Finished(self._now_s, _one(j), _value(done)))

    def _forget(self, j: int) -> None:
        self._wishes.pop(j, None)
        self._starts.pop(j, None)

    # ---- after a restart ---------------------------------------------------------------------------------------------

    def _resume_job(self, j: int, phase: Phase) -> None:
        number = int(self._state.leases[j])
        lease = self._fleet.last_launched(self._state.specs[j].id, number)
        if phase is Phase.MOVING and lease is not None and lease.number == number:
            self._say_stopped(j, self._kept_before(j, number))  # the log had no time to learn of it
            phase = Phase.STARTING
        if phase is Phase.MOVING or (phase is Phase.STARTING and (lease is None or lease.number < number)):
            self._starts[j] = _Start(number, self._state.spots[j], self._now_s)
        stops = phase in (Phase.STOPPING, Phase.MOVING)
        # A job that stops may have been given GPUs since, once or more often: it is the last lease that counts.
        mine = lease is not None and (stops or (phase in HAS_GPUS and lease.number == number))
        if lease is not None:
            self._adopt(j, phase, lease, mine)
        if not mine and stops:
            self._say_stopped(j, self._tell.done(j))  # it was never launched
        elif not mine and phase is Phase.RUNNING:
            self._say_lost(j, self._tell.done(j))

    def _kept_before(self, j: int, number: int) -> float:
        lease = self._fleet.last_launched(self._state.specs[j].id, number - 1)
        if lease is None:
            return self._tell.done(j)
        old = Live(lease, j, self._now_s, self._tell.done(j))
        return kept(self._state, old, self._fleet.sight(lease), self._now_s)

    def _adopt(self, j: int, phase: Phase, lease: Lease, mine: bool) -> None:
        sight = self._fleet.sight(lease)
        if sight.condition is Condition.NEVER_CLAIMED:
            self._runner.revoke(lease.key)
            sight = self._fleet.sight(lease)
        if mine or sight.condition is Condition.RUNNING:
            told = phase is not Phase.STARTING
            live = Live(lease, j, self._now_s, self._tell.done(j), told=told, dropped=not mine)
            self._fleet.add(live)
            if sight.condition is Condition.RUNNING and (not mine or phase in (Phase.STOPPING, Phase.MOVING)):
                self._fleet.ask(live, self._now_s)
            elif phase in (Phase.STOPPING, Phase.MOVING):
                live.asked_s = self._now_s  # nobody is there to be asked


def _one(j: int) -> IntArray:
    return np.array([j], dtype=np.int64)


def _value(value: float) -> FloatArray:
    return np.array([value])
