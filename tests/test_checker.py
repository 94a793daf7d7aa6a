"""The journal checker finds errors: a sound journal that is spoilt in one place is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from building import job, run_checked, setup, true_samples
from checker import BadJournalError, check_journal
from fairlead.model.changes import Change, ChangeKind
from fairlead.model.cluster import NodeGroup
from fairlead.rates.profile import Profile, Speed
from fairlead.sim.truth import World
from fairlead.studies.policy_lab.policy_worlds import FACTS
from fairlead.studies.runs.simulate import Setup

Record = dict[str, Any]
Spoil = Callable[[list[Record]], None]


def made() -> Setup:
    """`heavy` needs 14 GiB, more than the K80 has; nodes fail and recover; the third job waits for the first."""
    speeds = Profile(
        "two", tuple(Speed(m, g, 1, 1, 1.0, 1.0, "made up") for m in ("heavy", "light") for g in ("v100", "k80")), FACTS
    )
    jobs = [
        job("a", 2, 9000.0, model="heavy"),
        job("b", 1, 8000.0, model="light", types=("k80",)),
        job("c", 2, 900.0, at=50.0, model="heavy"),
    ]
    world = World(mtbf_s=5000.0, repair_s=100.0, checkpoint_s=500.0, seed=1)
    return setup(jobs, "v100:2,k80:1", "srtf", speeds, world=world)


def find(records: list[Record], event: str, job_id: str | None = None) -> Record:
    return next(
        r
        for r in records
        if r.get("event") == event and (job_id is None or job_id in r.get("jobs", ()) or job_id in r.get("start", ()))
    )


def start_before_arrival(records: list[Record]) -> None:
    records.append(records.pop(records.index(find(records, "arrived"))))


def oversubscribe(records: list[Record]) -> None:
    find(records, "decision", "a")["start"]["a"] = {"v100-1": 3}
    find(records, "arrived")["job"]["widths"] = [2, 3]


def tear_a_gang(records: list[Record]) -> None:
    find(records, "decision", "a")["start"]["a"] = {"v100-1": 1}


def wrong_type(records: list[Record]) -> None:
    find(records, "decision", "b")["start"]["b"] = {"v100-1": 1}


def mix_types(records: list[Record]) -> None:
    find(records, "arrived", None)["job"]["types"] = []
    find(records, "decision", "c")["start"]["c"] = {"v100-1": 1, "k80-1": 1}
    for record in records:
        if record.get("event") == "arrived":
            record["job"]["model"], record["job"]["types"] = "light", []


def too_little_memory(records: list[Record]) -> None:
    find(records, "decision", "a")["start"]["a"] = {"k80-1": 1}
    records[1]["job"]["widths"] = [1, 2]


def lose_work(records: list[Record]) -> None:
    find(records, "finished")["samples"][0] -= 1.0


def find_work(records: list[Record]) -> None:
    started = find(records, "started", "a")
    started["rate"][started["jobs"].index("a")] *= 1.001


def finish_twice(records: list[Record]) -> None:
    records.append(dict(find(records, "finished"), time_s=records[-1]["time_s"]))


def lose_a_job(records: list[Record]) -> None:
    records.remove([r for r in records if r.get("event") == "finished"][-1])


def ignore_a_fault(records: list[Record]) -> None:
    records.remove(find(records, "lost"))


def turn_back_time(records: list[Record]) -> None:
    find(records, "finished")["time_s"] -= 10_000.0


def pre_empt_inside_a_round(records: list[Record]) -> None:
    next(r for r in records if r.get("stop"))["cause"] = "event"


def decide_off_the_boundary(records: list[Record]) -> None:
    records[0]["settings"]["round_s"] = 350.0


def stop_too_soon(records: list[Record]) -> None:
    records[0]["settings"]["min_run_s"] = 1e6


def drop_an_answer(records: list[Record]) -> None:
    records.remove(find(records, "started"))


def explained(records: list[Record]) -> Record:
    """The first decision that records a reason for a waiting job."""
    return next(r for r in records if r.get("why"))


def wait_for_no_reason(records: list[Record]) -> None:
    explained(records)["why"].clear()


def miscount_free_gpus(records: list[Record]) -> None:
    next(iter(explained(records)["why"].values()))[2] += 1


def miscount_jobs_that_go_first(records: list[Record]) -> None:
    next(iter(explained(records)["why"].values()))[3] += 1


def claim_capacity_at_a_round(records: list[Record]) -> None:
    next(iter(explained(records)["why"].values()))[0] = "Capacity"


def ask_for_more(records: list[Record]) -> None:
    next(iter(explained(records)["why"].values()))[1] += 1


def give_a_running_job_a_reason(records: list[Record]) -> None:
    decision = find(records, "decision", "a")
    decision["why"]["a"] = ["Order", 2, 0, 1, 2]


def invent_a_successor(records: list[Record]) -> None:
    next(r for r in records if r.get("stop"))["taken_by"] = {"b": ["a"]}


SPOILS = (
    wait_for_no_reason,
    miscount_free_gpus,
    miscount_jobs_that_go_first,
    claim_capacity_at_a_round,
    ask_for_more,
    give_a_running_job_a_reason,
    invent_a_successor,
    start_before_arrival,
    oversubscribe,
    tear_a_gang,
    wrong_type,
    mix_types,
    too_little_memory,
    lose_work,
    find_work,
    finish_twice,
    lose_a_job,
    ignore_a_fault,
    turn_back_time,
    pre_empt_inside_a_round,
    decide_off_the_boundary,
    stop_too_soon,
    drop_an_answer,
)


def test_the_journal_that_is_spoilt_below_is_sound_and_has_every_kind_of_record(tmp_path: Path) -> None:
    _, checked = run_checked(made(), tmp_path / "journal")

    assert {"arrived", "decision", "started", "stopped", "lost", "finished", "node_down", "node_up"} == set(
        checked.records
    )


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_spoilt_journal_is_refused(spoil: Spoil, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    run_checked(made(), path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    spoil(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))

    with pytest.raises(BadJournalError):
        check_journal(path, true_samples(made()))


def changing() -> Setup:
    """The second job is lost when other users take its GPUs, then the first when its node leaves."""
    jobs = [job("a", 2, 9000.0), job("b", 1, 9000.0)]
    changes = (
        Change(400.0, ChangeKind.USABLE, "v100-1", usable=2),
        Change(800.0, ChangeKind.REMOVE, "v100-1"),
        Change(900.0, ChangeKind.ADD, "new", NodeGroup(1, "v100", 3)),
    )
    return replace(setup(jobs, "v100:3"), changes=changes)


def leave_under_a_job(records: list[Record]) -> None:
    records.remove([r for r in records if r.get("event") == "lost"][-1])
    records.remove(find(records, "node_down"))


def shrink_under_a_job(records: list[Record]) -> None:
    records.remove(find(records, "lost"))


def lose_for_no_reason(records: list[Record]) -> None:
    records.remove(find(records, "node_usable"))


def join_twice(records: list[Record]) -> None:
    records.insert(records.index(find(records, "node_added")), dict(find(records, "node_added")))


def start_where_no_node_is(records: list[Record]) -> None:
    find(records, "node_added")["gpus"] = 1


@pytest.mark.parametrize(
    "spoil",
    [leave_under_a_job, shrink_under_a_job, lose_for_no_reason, join_twice, start_where_no_node_is],
    ids=lambda spoil: spoil.__name__,
)
def test_a_spoilt_journal_of_a_cluster_that_changes_is_refused(spoil: Spoil, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    run_checked(changing(), path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    spoil(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))

    with pytest.raises(BadJournalError):
        check_journal(path, true_samples(changing()))
