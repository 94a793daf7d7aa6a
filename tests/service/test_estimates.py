"""Start estimates of a service: made beside it, shown to those who may see the job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairlead.cli.main import main
from fairlead.cli.serve import _estimates
from fairlead.cli.starts import start_text
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived, Started
from fairlead.model.jobs import JobSpec
from fairlead.service.process.estimating import Estimating, estimate_once
from fairlead.service.store.estimates_file import read_estimates, write_estimates
from fairlead.service.store.tokens import Role
from serving import World, world
from waiting import wait_for


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """Four GPUs that `first` holds for another 100 s; two jobs wait, each of a tenant."""
    with world(tmp_path) as made:
        made.service.directory.path.mkdir(exist_ok=True)
        now_s = time.time()
        specs = [
            JobSpec("first", "vision", "even", now_s, 4, 100.0, types=("v100",)),
            JobSpec("second", "vision", "even", now_s, 4, 50.0, types=("v100",)),
            JobSpec("third", "speech", "even", now_s, 4, 50.0, types=("v100",)),
        ]
        for spec in specs:
            made.happen(Arrived(now_s, spec))
        one = np.array([0])
        decision = Decision(now_s, Cause.EVENT, np.empty(0, dtype=np.int64), one, (((0, 4),),), now_s, "none")
        made.log.decision(decision)
        made.log.state.fold(decision)
        made.happen(Started(now_s, one, np.array([4.0]), np.array([now_s])))
        made.log.commit(made.log.taken)
        yield made


def test_an_estimate_is_when_the_simulated_job_starts(here: World) -> None:
    estimates = estimate_once(here.service.directory)

    assert read_estimates(here.service.directory) == estimates
    assert estimates.chance == pytest.approx(9 / 11)
    starts = {one.job: one for one in estimates.estimates}
    assert set(starts) == {"second", "third"}
    earliest = starts["second"].earliest_s
    assert earliest is not None
    assert 99.0 <= earliest - estimates.time_s <= 161.0  # at the end of the first job, or at the round after it


def test_a_tenant_sees_the_estimates_of_its_own_jobs_only(here: World) -> None:
    nothing = here.client.get("/v1/estimates", headers=here.admin).json()
    assert (nothing["estimates"], nothing["time_s"]) == ([], None)
    estimate_once(here.service.directory)

    def jobs(headers: dict[str, str]) -> list[str]:
        return [row["job"] for row in here.client.get("/v1/estimates", headers=headers).json()["estimates"]]

    assert jobs(here.admin) == ["second", "third"]
    assert jobs(here.token(Role.MEMBER, "speech")) == ["third"]
    assert jobs(here.token(Role.MEMBER, "other")) == []


def test_the_background_keeps_them_fresh_and_ends(here: World) -> None:
    reads, directory = here.service.reads, here.service.directory
    estimating = Estimating(directory, 1.0, reads.waiting, reads.last_seq, check_s=0.05)
    estimating.start()
    try:
        wait_for(lambda: read_estimates(directory) is not None, "start estimates")
    finally:
        estimating.stop()
    assert not estimating._thread.is_alive()


def test_without_a_budget_nothing_is_estimated(here: World) -> None:
    estimating = Estimating(here.service.directory, 0.0, here.service.reads.waiting, here.service.reads.last_seq)
    estimating.start()
    estimating.stop()
    assert estimating._thread.ident is None


def test_damaged_estimates_are_none(here: World) -> None:
    here.service.directory.estimates_file.write_text('{"fairlead": "estimates/1", "time_s"')
    assert read_estimates(here.service.directory) is None
    assert here.client.get("/v1/estimates", headers=here.admin).json()["estimates"] == []


def test_the_queue_shows_when_jobs_start(
    here: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_URL", str(here.client.base_url))
    monkeypatch.setenv("FAIRLEAD_TOKEN", here.admin["Authorization"].removeprefix("Bearer "))

    def fairlead(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["fairlead", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    for _ in range(2):
        here.submit(steps=100)
    here.take()
    here.log.commit(here.log.taken)
    assert "there are no estimates: none were made yet" in fairlead("queue", "--start")[1]
    estimate_once(here.service.directory)
    code, out = fairlead("queue", "--start")
    assert code == 0
    assert "of 10)" in out
    assert "estimated at" in out
    waiting = json.loads(fairlead("queue", "--start", "-o", "json")[1])
    assert all(start["chance"] > 0.8 for start in waiting["starts"].values())
    job = next(iter(waiting["starts"]))
    assert "of 10)" in fairlead("status", job)[1]
    assert fairlead("queue", "--start", "--all")[0] == 2


@pytest.mark.parametrize(
    ("earliest_s", "latest_s", "text"),
    [
        (600.0, 1500.0, "in 10-25 min (8 of 10)"),
        (-5.0, 30.0, "within a minute (8 of 10)"),
        (0.0, 90.0, "in 0-90 s (8 of 10)"),
        (7300.0, 7300.0, "in 2 h (8 of 10)"),
        (10_800.0, None, "in 3 h or later (8 of 10)"),
        (None, None, "not within 24 h"),
    ],
)
def test_an_estimate_in_words(earliest_s: float | None, latest_s: float | None, text: str) -> None:
    start = {"earliest_s": earliest_s, "latest_s": latest_s, "chance": 9 / 11, "time_s": 0.0, "until_s": 86400.0}
    assert start_text(start, 0.0) == text


def test_a_budget_is_a_percentage_or_off() -> None:
    assert _estimates("25%") == 0.25
    assert _estimates("off") == 0.0
    for wrong in ("0%", "lots", "200%"):
        with pytest.raises(InputError, match="percentage"):
            _estimates(wrong)


def test_estimates_are_checked_when_jobs_have_started(here: World) -> None:
    directory = here.service.directory
    made = estimate_once(directory)
    assert set(made.experience["pending"]) == {"second", "third"}
    assert (made.held, made.checked) == (0, 0)
    started_s = float(here.log.state.first_start_s[here.log.state.position["first"]])
    pending = {
        "first": [started_s - 100.0, 200.0, 300.0, 50.0, 300.0]
    }  # what was shown held, and the futures' range not
    write_estimates(directory, replace(made, experience={"checked": [], "pending": pending}))

    again = estimate_once(directory)
    assert (again.held, again.checked) == (1, 1)
    assert again.experience["checked"][0][1] > 0
    assert set(again.experience["pending"]) == {"second", "third"}
    answer = here.client.get("/v1/estimates", headers=here.admin).json()
    assert (answer["held"], answer["checked"]) == (1, 1)


def test_no_estimates_have_a_reason(here: World) -> None:
    nothing = here.client.get("/v1/estimates", headers=here.admin).json()
    assert nothing["reason"].startswith("none were made yet")
