"""What must be true of a history once it is over, read from its files: the log, its replay, the tables, the sums."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from simulated_machines import BrokenPromiseError
from simulated_service import PLAN, Client, Simulation

from checker import Checked, check_journal
from fairlead.model.lifecycle import Phase
from fairlead.policies import find_round_policy
from fairlead.rounds.replay import replay, same, same_reasons
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.service.store.database import open_reader
from fairlead.service.store.facts import fact
from fairlead.service.store.log import header_of, read_records, read_state
from fairlead.studies.journals.folding import open_state

SNAPSHOTS_COMPARED = 5  # in one of this many histories, because it takes long
STOPS_WITHIN_S = 120.0
_SAME = 1e-6


def check_history(simulation: Simulation, folder: Path) -> None:
    """Raise at the first thing that is not as it must be."""
    with closing(open_reader(simulation.directory.events)) as log:
        path = folder / "journal.jsonl"
        lines = (row[0] for row in log.execute("SELECT record FROM log ORDER BY seq"))
        path.write_text("\n".join((fact(log, "header"), *lines, "")), encoding="utf-8")
        checked = check_journal(path)
        header = header_of(log)
        state, count = open_state(header), 0
        policy = find_round_policy(header.policy)
        records = (record for _, record in read_records(log, open_state(header)))
        for recorded, again in replay(records, state, policy, PLAN.settings):
            count += 1
            if not (same(recorded, again) and same_reasons(recorded, again)):
                raise BrokenPromiseError(f"a replay decides {again}, the log has {recorded}")
        _need(count == checked.records["decision"], "decisions are missing in the replay")
        if simulation.seed % SNAPSHOTS_COMPARED == 0:
            _need(dump(read_state(log)[1]) == dump(state), "a snapshot and later records give another state")
        rows = log.execute("SELECT id, phase, attained_gpu_s, gpus, done FROM jobs").fetchall()
    ends = {row[0]: End(*row[1:]) for row in rows}
    _check_sums(state, checked, ends)
    for client in simulation.clients:
        check_end(client, ends)
        _check_cancelled(client, simulation)
    if not simulation.boot:  # after a boot the time of the log continues with the wall clock, which may be wrong
        most = simulation.now_s * sum(node.gpus for node in simulation.machines.nodes.values())
        _need(state.busy_gpu_s <= most * (1 + _SAME), f"{state.busy_gpu_s} GPU s were counted, there were {most}")


@dataclass(frozen=True)
class End:
    """The row of a job in the end."""

    phase: str
    attained_gpu_s: float
    gpus: int
    done: float


def _check_sums(state: State, checked: Checked, ends: dict[str, End]) -> None:
    """GPU-hours add up: in the table, in all, and recounted from the text of the log."""
    _need(ends.keys() == checked.jobs.keys(), f"{checked.jobs.keys() ^ ends.keys()} are not in both, log and table")
    for id_, end in ends.items():
        recounted = checked.jobs[id_].attained_gpu_s
        amount = end.attained_gpu_s
        _need(not end.gpus, f"{id_} is {end.phase} and has {end.gpus} GPUs in the table")
        _need(math.isclose(amount, recounted, rel_tol=_SAME, abs_tol=_SAME), f"{id_}: {amount} of {recounted} GPU s")
    for id_, j in state.position.items():  # without those that were forgotten
        phase = Phase(int(state.phase[j])).name.lower()
        _need(ends[id_].phase == phase, f"{id_} is {phase}, and {ends[id_].phase} in the table")
    total = sum(end.attained_gpu_s for end in ends.values())
    _need(math.isclose(state.busy_gpu_s, total, rel_tol=_SAME), f"{state.busy_gpu_s} GPU s were busy, {total} attained")
    _need(bool((state.node_free == state.cluster.node_gpus).all()), f"{state.node_free.tolist()} GPUs are free")


def check_end(client: Client, ends: dict[str, End]) -> None:
    """The job came to the end that it must have."""
    assert client.id is not None
    end, job = ends[client.id], client.job
    if end.phase == "finished":
        _need(not job.missing, f"{client.id} finished and cannot be started")
        samples = job.steps * client.submission.spec.gpus
        _need(abs(end.done - samples) < _SAME, f"{client.id} finished with {end.done} of {samples} samples")
    elif end.phase == "cancelled":
        _need(client.cancelled, f"{client.id} was cancelled by nobody")
    else:
        _need(end.phase == "failed", f"{client.id} is {end.phase}")


def _check_cancelled(client: Client, simulation: Simulation) -> None:
    """A job whose cancellation was acknowledged does not train on, once messages arrive again."""
    late_s = simulation.storm_s + STOPS_WITHIN_S
    runs = (run for key, run in simulation.machines.runs.items() if key[0] == client.id)
    if client.cancel < math.inf:
        _need(not any(run.end_s > late_s for run in runs), f"{client.id} ran for long after it was cancelled")


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise BrokenPromiseError(complaint)
