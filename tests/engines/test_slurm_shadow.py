"""The watching engine over a made-up Slurm: what it says about what it sees, tenants, gaps and its load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fairlead.engines.requests import Command, Request, SetPolicy, Submit
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.machines import COLUMNS as NODE_COLUMNS
from fairlead.engines.slurm.queue import COLUMNS as JOB_COLUMNS
from fairlead.engines.slurm.shadow import ANNOUNCE_AGAIN_S, ShadowEngine, WatchOptions
from fairlead.engines.slurm.tables import SEPARATOR
from fairlead.engines.slurm.watch_file import WatchFile
from fairlead.engines.slurm.watched import WatchedJob
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.events import Arrived, PolicySet, TenantSet
from fairlead.model.quotas import Quota
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured
from fairlead.rounds.records import Record
from fairlead.rounds.state import State
from fairlead.traces.profiles import load_default_profile

CLUSTER = parse_short_form("v100:4x4")
KEEP_S = 86_400.0
T0 = 1_794_800_000.0
SHARES = "Account|User|RawShares|RawUsage\nroot||||\n lab||3|0\n  lab|ann|1|0\n"
LIMITS = "lab||3|normal|gres/gpu:v100=2\n"


class MadeUpSlurm(Slurm):
    """Prints what a test lays out, and remembers which programs were run."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, str]] = []
        self.used = 0
        self.answers = {"scontrol": "PrivateData = none\n", "sshare": SHARES, "sacctmgr": LIMITS}
        self.silent = False
        self.ran: list[str] = []

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        self.ran.append(words[0])
        if self.silent:
            raise SlurmError("Unable to contact slurm controller", lost=True)
        if words[0] == "squeue":
            rows = [{**dict.fromkeys(JOB_COLUMNS, "N/A"), **job} for job in self.jobs]
            return "\n".join(SEPARATOR.join(row[name] for name in JOB_COLUMNS) + SEPARATOR for row in rows)
        if words[0] == "sinfo":
            node = dict(zip(NODE_COLUMNS, ["v100-1", "v100-1", "mixed", "gpu:v100:4", "", "all", ""], strict=True))
            node["GresUsed"] = f"gpu:v100:{self.used}"
            return SEPARATOR.join(node.values()) + SEPARATOR
        if self.answers.get(words[0]) is None:
            raise SlurmError(f"{words[0]}: not supported")
        return self.answers[words[0]]


class World:
    """An engine with a clock that a test moves, and an inbox that hands announced jobs back."""

    def __init__(self, path: Path) -> None:
        self.now_s = T0
        self.slurm = MadeUpSlurm()
        self.requests: list[Request] = []
        self.deaf = False  # announcements are lost
        self.state = State(CLUSTER, WithUnmeasured(TableEstimator(load_default_profile(), CLUSTER)))
        self.path = path
        self.engine = self.begin()

    def begin(self) -> ShadowEngine:
        self.record = WatchFile(self.path / "record")
        return ShadowEngine(
            self.state,
            self.slurm,
            self,
            self.record,
            WatchOptions(keep_s=KEEP_S),
            clock=lambda: self.now_s,
            wall=lambda: self.now_s,
            announce=self.announce,
        )

    def announce(self, rows: Sequence[WatchedJob]) -> None:
        self.requests += [Submit(row.spec, Command("")) for row in rows if not self.deaf]

    def take(self, timeout_s: float) -> list[Request] | None:
        if not self.requests:
            self.now_s += max(timeout_s, 0.0)
        taken, self.requests = self.requests, []
        return taken

    def pass_time(self, seconds: float) -> list[Record]:
        """All records until then, folded."""
        until_s, folded = self.now_s + seconds, list[Record]()
        while self.now_s < until_s:
            records = self.engine.wait(until_s)
            for record in records or []:
                self.state.fold(record)
                folded.append(record)
        return folded


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.record.close()


def running(id_: str = "5") -> dict[str, str]:
    return {
        "JobID": id_,
        "State": "RUNNING",
        "UserName": "ann",
        "Account": "lab",
        "NumNodes": "1",
        "NodeList": "v100-1",
        "tres-per-node": "gres:gpu:2",
        "SubmitTime": "2026-11-16T03:00:00",
        "StartTime": "2026-11-16T03:10:00",
    }


def test_a_running_job_arrives_and_starts_where_slurm_has_it(world: World) -> None:
    world.slurm.jobs, world.slurm.used = [running()], 2
    records = world.pass_time(5)

    arrived = next(record for record in records if isinstance(record, Arrived))
    decision = next(record for record in records if isinstance(record, Decision))
    assert arrived.spec.arrival_s < T0
    assert (decision.solver, decision.by_clock, decision.spots) == ("slurm", True, (((0, 2),),))
    assert world.state.held_gpus[world.state.position["5"]] == 2


def test_a_job_whose_announcement_was_lost_is_announced_again(world: World) -> None:
    world.slurm.jobs, world.deaf = [running()], True
    world.pass_time(15)
    assert world.state.jobs == 0
    world.deaf = False
    world.pass_time(ANNOUNCE_AGAIN_S + 20)

    assert list(world.state.position) == ["5"]


def test_accounts_become_tenants_with_weights_and_caps(world: World) -> None:
    terms = [record for record in world.pass_time(1) if isinstance(record, TenantSet)]
    assert [(term.tenant, term.weight, term.quotas) for term in terms] == [
        ("lab", 3.0, (Quota("v100", 0, borrowing_limit=2),))
    ]
    assert not [record for record in world.pass_time(4000) if isinstance(record, TenantSet)], "nothing has changed"
    assert world.record.record.weights == {"lab": 3.0}


def test_shares_that_cannot_be_read_for_once_stay_as_they_were(world: World) -> None:
    world.pass_time(1)
    world.slurm.silent = True
    world.pass_time(4000)
    assert world.record.record.weights == {"lab": 3.0}


def test_without_an_accounting_database_all_weights_are_equal_and_that_is_stated(world: World) -> None:
    del world.slurm.answers["sshare"], world.slurm.answers["sacctmgr"]
    assert world.pass_time(1) == []
    assert any("all accounts have the same weight" in sentence for sentence in world.engine.sentences())


def test_hidden_jobs_are_noticed_by_the_setting_and_by_their_gpus(world: World) -> None:
    world.slurm.answers["scontrol"] = "Foo = 1\nPrivateData             = accounts,jobs\n"
    world.slurm.used = 3
    world.pass_time(1)
    text = "\n".join(world.engine.sentences())

    assert "PrivateData=accounts,jobs" in text
    assert "3 GPUs held by jobs that are hidden or left aside" in text
    assert world.state.nodes.usable.tolist() == [1]


def test_one_look_is_one_squeue_and_one_sinfo_whatever_the_number_of_jobs(world: World) -> None:
    world.slurm.jobs = [running(str(number)) for number in range(1, 200)]
    world.pass_time(1)
    assert (world.slurm.ran.count("squeue"), world.slurm.ran.count("sinfo")) == (1, 1)
    world.pass_time(30)
    assert world.slurm.ran.count("squeue") == 4


def test_a_silent_slurm_ends_no_job_and_leaves_a_gap(world: World) -> None:
    world.slurm.jobs, world.slurm.used = [running()], 2
    world.pass_time(15)
    world.slurm.silent = True
    assert world.pass_time(600) == []
    assert any("has not answered" in sentence for sentence in world.engine.sentences())
    world.slurm.silent = False
    world.pass_time(20)

    (gap,) = world.record.record.gaps
    assert 580 < gap.to_s - gap.from_s < 640
    assert world.state.held_gpus[0] == 2


def test_a_restart_repeats_no_fact_and_states_the_gap(world: World) -> None:
    world.slurm.jobs, world.slurm.used = [running()], 2
    world.pass_time(15)
    lines = (world.path / "record").read_text().count("\n")
    world.record.close()
    world.now_s += 7200
    world.engine = world.begin()

    assert [record for record in world.pass_time(15) if not isinstance(record, TenantSet)] == []
    text = (world.path / "record").read_text()
    assert text.count("\n") == lines + 1
    assert "the service did not run" in text.splitlines()[-1]


def test_the_record_is_bounded_by_what_the_operator_keeps(world: World) -> None:
    world.slurm.jobs, world.slurm.used = [running()], 2
    world.pass_time(15)
    world.slurm.jobs, world.slurm.used = [], 0
    world.pass_time(2 * KEEP_S)
    world.engine.forget_old()

    assert world.record.record.jobs == {}
    assert (world.path / "record").read_text().count("\n") <= 6


def test_another_policy_ends_the_loop_so_that_it_can_begin_again(world: World) -> None:
    world.pass_time(1)
    world.requests = [SetPolicy("fifo", {})]
    assert world.engine.wait(world.now_s + 1) == [PolicySet(world.now_s, "fifo", {})]
    assert world.engine.wait(world.now_s + 1) is None
