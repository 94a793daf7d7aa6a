"""What jobs of one tenant can do to those of another: every line of the table in docs/operations.md, with real users."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from building import Scene
from fairlead.engines.leases import OVER, Condition, Gpu, Lease
from fairlead.engines.local import shim
from fairlead.engines.local.accounts import Accounts, parse_accounts
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.processes import claim_of
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.registry import ENGINES, RunnerOptions
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.jobs import JobSpec
from leftovers import end_leases
from waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
TABLE = Path(__file__).resolve().parents[2] / "docs/operations.md"
DEVICES = slots_as_devices(["n"], [2])
ALICE, BOB = "64101:64101", "64102:64102"  # numbers that no user of the machine has
WORLDS: dict[str, list[str]] = {  # the columns of the table, with the users of the service
    "no `--user`": [],
    "`--user NAME`": [ALICE],
    "`--user TENANT=NAME` each": [f"vision={ALICE}", f"speech={BOB}"],
}
PROBES = {  # the lines of the table, each with a command that succeeds if it can be done
    "read the state directory": "ls $STATE/events.db",
    "read another tenant's log on disk": "cat $STATE/leases/victim/1/log",
    "read another tenant's lease, with its variables": "grep -q secret $WORK/leases/victim/1/lease.json",
    "read another tenant's checkpoints": "ls $WORK/leases/victim/checkpoints",
    "read the variables of another tenant's processes": "grep -q secret /proc/$VICTIM/environ",
    "signal another tenant's processes": "kill -0 $VICTIM",
    "signal the supervisor of a lease": "kill -0 $SUPERVISOR",
    "gain rights through a setuid program": '[ "$($SETUID -u)" = 0 ]',
    "see another tenant's command lines": "grep -q infinity /proc/$VICTIM/cmdline",
}


def rows() -> dict[str, dict[str, str]]:
    """The table as it is in the documentation, by line and column."""
    text = TABLE.read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    first = next(n for n, cells in enumerate(lines) if cells[0] == "a job can")
    columns = lines[first][1:]
    table = {}
    for cells in lines[first + 2 :]:
        if len(cells) != len(columns) + 1 or cells[0] == "":
            break
        table[cells[0]] = dict(zip(columns, cells[1:], strict=True))
    return table


class Tenants:
    """A runner with a job of tenant vision that runs, and one of tenant speech that tries everything."""

    def __init__(self, folder: Path, users: list[str]) -> None:
        self.folder = folder
        (folder / "state").mkdir(mode=0o700)
        (folder / "state/events.db").touch(0o600)
        self.runner = LocalRunner(folder / "state", DEVICES, accounts=parse_accounts(users))
        self.work = folder / ("state.work" if users else "state")

    def launch(self, job: str, tenant: str, run: str, number: int = 1, env: Mapping[str, str] | None = None) -> Lease:
        gpu = Gpu("n", "v100", 0 if tenant == "vision" else 1)
        lease = Lease(job, number, (gpu,), Command(run, workdir="/", env=env or {}), tenant=tenant)
        self.runner.launch(lease)
        return lease

    def log(self, lease: Lease) -> str:
        path = self.runner.directory(lease.key) / shim.LOG
        return path.read_text() if path.exists() else ""

    def condition(self, lease: Lease) -> Condition:
        return self.runner.look([lease.key]).sights[lease.key].condition

    def end(self, lease: Lease) -> str:
        wait_for(lambda: self.condition(lease) in OVER, "the end of a lease")
        return self.log(lease)

    def try_all(self) -> dict[str, str]:
        victim = self.launch("victim", "vision", "echo here $$; exec sleep infinity", env={"A": "secret"})
        wait_for(lambda: "here" in self.log(victim), "the victim")
        claim = claim_of(self.runner.directory(victim.key))
        program = self.folder / "program"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        env = {"STATE": str(self.folder / "state"), "WORK": str(self.work), "SETUID": str(program)}
        env |= {"VICTIM": str(claim["group"]), "SUPERVISOR": str(claim["supervisor"])}
        script = "\n".join(f"if {probe} >/dev/null 2>&1; then echo yes; else echo no; fi" for probe in PROBES.values())
        found = self.end(self.launch("attacker", "speech", script, env=env)).split()
        self.runner.kill(victim)
        self.end(victim)
        return dict(zip(PROBES, found, strict=True))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o711)
        try:
            yield Path(name)
        finally:
            end_leases(Path(name) / "state")


@pytest.mark.parametrize("world", WORLDS)
def test_every_line_of_the_table_is_true(folder: Path, world: str) -> None:
    documented = {line: cells[world] for line, cells in rows().items()}

    assert Tenants(folder, WORLDS[world]).try_all() == documented


def test_a_job_is_its_user_and_nothing_more(folder: Path) -> None:
    tenants = Tenants(folder, [f"vision={ALICE}"])
    script = "id -u; id -G; umask; echo $HOME $USER; grep NoNewPrivs /proc/self/status; ls /proc/self/fd | tr '\\n' ' '"

    lines = tenants.end(tenants.launch("a", "vision", script)).splitlines()

    assert lines[:5] == ["64101", "64101", "0077", f"/ {ALICE}", "NoNewPrivs:\t1"]
    assert lines[5].split()[:3] == ["0", "1", "2"]
    assert len(lines[5].split()) <= 4  # ls itself opens the directory


def test_a_job_has_all_groups_of_its_user(folder: Path) -> None:
    account = parse_accounts(["nobody"]).default
    assert account is not None
    tenants = Tenants(folder, ["nobody"])
    more = Accounts(type(account)("nobody", account.uid, account.gid, (account.gid, 64103), "/"))
    tenants.runner = LocalRunner(folder / "state", DEVICES, accounts=more)

    assert tenants.end(tenants.launch("a", "vision", "id -G")).split() == [str(account.gid), "64103"]


def test_a_tenant_without_a_user_is_refused_if_others_have_one(folder: Path) -> None:
    tenants = Tenants(folder, [f"vision={ALICE}"])

    with pytest.raises(LaunchError, match=r"tenant speech has no user on this machine.*--user speech=NAME"):
        tenants.launch("a", "speech", "true")


def test_a_tenant_without_a_user_of_its_own_has_the_default(folder: Path) -> None:
    tenants = Tenants(folder, [ALICE, f"speech={BOB}"])

    assert tenants.end(tenants.launch("a", "vision", "id -u")).strip() == "64101"
    assert tenants.end(tenants.launch("b", "speech", "id -u")).strip() == "64102"


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["root"], "cannot run as"),
        (["0:0"], "cannot run as"),
        (["nobody", "nobody"], "the default has a user already"),
        (["a=nobody", "a=64101:64101"], "tenant a has a user already"),
        (["a="], 'no user ""'),
        (["a=64101"], "write UID:GID"),
        (["a=4294967295:64101"], "is not UID:GID; the largest number"),
    ],
)
def test_users_that_make_no_sense_are_refused(users: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_accounts(users)


# ---- a change of users -------------------------------------------------------------------------------------------------


def test_the_user_of_a_lease_that_runs_does_not_change(folder: Path) -> None:
    tenants = Tenants(folder, [f"vision={ALICE}"])
    lease = tenants.launch("a", "vision", "echo runs; exec sleep infinity")
    wait_for(lambda: "runs" in tenants.log(lease), "the job")
    state = Scene([JobSpec("a", "vision", "fast", 0.0, 1, 10.0)], "v100:1", held={"a": ((0, 1),)}).state()

    def start_again(*users: str) -> None:
        ENGINES["local"].open_runner(folder / "state", state, RunnerOptions(users, emulate=True))

    start_again(f"vision={ALICE}", f"speech={BOB}")
    for users in ([f"vision={BOB}"], [f"speech={BOB}"], []):
        with pytest.raises(FairleadError, match="vision"):
            start_again(*users)

    tenants.runner.kill(lease)
    tenants.end(lease)
    start_again(f"vision={BOB}")


def test_checkpoints_of_another_user_are_not_left_behind(folder: Path) -> None:
    tenants = Tenants(folder, [ALICE])
    tenants.end(tenants.launch("a", "vision", "true"))
    tenants.runner = LocalRunner(folder / "state", DEVICES, accounts=parse_accounts([BOB]))

    with pytest.raises(LaunchError, match=r"belong to user 64101.*chown -R 64102:64102"):
        tenants.launch("a", "vision", "true", 2)


def test_checkpoints_in_the_state_directory_are_not_left_behind(folder: Path) -> None:
    tenants = Tenants(folder, [])
    tenants.end(tenants.launch("a", "vision", f"touch {folder}/state/leases/a/checkpoints/1"))
    tenants.runner = LocalRunner(folder / "state", DEVICES, accounts=parse_accounts([BOB]))

    with pytest.raises(LaunchError, match="its checkpoints are in"):
        tenants.launch("a", "vision", "true", 2)
