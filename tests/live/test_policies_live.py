"""Each paper's policy with real processes: jobs are pre-empted, continue where they were, and lose no step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from live_run import Done, Plan, all_ended, let_end, run_live, training, weight_after

from building import profile
from fairlead.engines.requests import Request, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.events import Finished, Started, Stopped
from fairlead.model.lifecycle import Phase
from fairlead.rounds.state import State
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.replaying import replay_journal

POLICIES: dict[str, dict[str, float]] = {
    "oef-coop": {},
    "oef-noncoop": {},
    "fft": {},
    "fft-ranked": {},
    "hops": {},
    "hops-late": {},
    "hlas-rounds": {"first_s": 2.0},  # its first queue is meant for hours of training, and these jobs train for seconds
}
CLUSTER, SPEEDS, PACE = "v100:2,k80:1", {"v100": 50.0, "k80": 25.0}, {"v100": 1.0, "k80": 0.5}
FIRST = {"ann-1": 1, "ann-2": 1, "ann-3": 1}  # GPUs; they are long, and take the whole cluster
LATER = {"bob-1": 1, "cyd-1": 1, "bob-2": 2}  # they are short, and of other tenants
JOBS = [*FIRST, *LATER]


class Crowd:
    """One tenant fills the cluster, then others come with short jobs. Jobs end once some were pre-empted and continued."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = [self._jobs(FIRST, 20_000.0), self._jobs(LATER, 200.0)]

    def _jobs(self, gpus: Mapping[str, int], steps: float) -> list[Submit]:
        return [training(self._folder, id_, id_[:3], steps, gpus=width) for id_, width in gpus.items()]

    def __call__(self, state: State) -> Sequence[Request] | None:
        if self._next and (state.done[: state.jobs] > 0).all():
            return self._next.pop(0)
        if all_ended(state):
            return None
        if not self._next and state.restarts[: state.jobs].any():
            let_end(self._folder)
        return []


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_are_preempted_and_finish_with_every_step_done_once(policy: str, tmp_path: Path) -> None:
    plan = Plan(tmp_path, policy, parse_short_form(CLUSTER), profile({"m": SPEEDS}), PACE, POLICIES[policy])

    done = run_live(plan, Crowd(tmp_path))

    state = done.state
    assert set(state.phase[: len(JOBS)].tolist()) == {Phase.FINISHED}
    assert any(isinstance(record, Stopped) for record in done.records())
    for j, spec in enumerate(state.specs):
        trained = done.trained(spec.id)
        assert [step for step, _ in trained] == list(range(1, len(trained) + 1))
        assert trained[-1][1] == weight_after(len(trained))
        assert state.done[j] == len(trained) * spec.gpus
    assert most_gpus_at_once(done) <= state.cluster.total_gpus

    replayed = replay_journal(done.journal)
    assert replayed.same == replayed.decisions > 2
    audit = audit_journal(done.journal)
    assert set(audit.tenants) == {"ann", "bob", "cyd"}
    assert all(sum(tenant.gpu_hours.values()) > 0 for tenant in audit.tenants.values())


def most_gpus_at_once(done: Done) -> int:
    """GPUs on which processes ran at the same time, counted from the events alone."""
    used, most = Counter[int](), 0
    for record in done.records():
        if isinstance(record, Started):
            used.update({j: done.state.specs[j].gpus for j in record.jobs.tolist()})
        elif isinstance(record, Stopped | Finished):
            used.subtract({j: used[j] for j in record.jobs.tolist()})
        most = max(most, used.total())
    return most
