"""Control groups: which hierarchies are used, what is written into their files, and the real ones of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.engines.leases import OVER, Gpu, Lease
from fairlead.engines.local import cgroups
from fairlead.engines.local.hierarchies import (
    NO_LIMITS,
    GroupLimits,
    Hierarchies,
    Hierarchy,
    check_limits,
    find,
    lease_name,
)
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.shim import LOG
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError
from fairlead.model.errors import InputError
from waiting import wait_for

LIMITS = GroupLimits(memory_bytes=2**30, processes=64)


def machine(folder: Path, mounts: str, own: str) -> Path:
    """A /proc/self of a machine with these mounts below `folder`."""
    process = folder / "self"
    process.mkdir()
    lines = [f"{number} 1 0:{number} {line}" for number, line in enumerate(mounts.strip().splitlines(), 30)]
    (process / "mountinfo").write_text("\n".join(lines).replace("MOUNT", str(folder)) + "\n")
    (process / "cgroup").write_text(own)
    return process


def group(path: Path, controllers: str | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if controllers is not None:
        (path / "cgroup.controllers").write_text(controllers)
    return path


def test_without_control_groups_the_reason_is_known(tmp_path: Path) -> None:
    process = machine(tmp_path, "/ /sys rw - sysfs sysfs rw", "0::/\n")

    assert find(process) == Hierarchies(None, "no control groups are mounted")


def test_a_directory_that_only_looks_like_control_groups_is_not_used(tmp_path: Path) -> None:
    """A process that cannot be moved into a group would not be found there."""
    group(tmp_path / "cg", "memory pids")
    process = machine(tmp_path, "/ MOUNT/cg rw - cgroup2 cgroup2 rw", "0::/\n")

    found = find(process)

    assert found.tracking is None
    assert "cgroup.procs" in found.why_none


@pytest.mark.parametrize(
    ("root", "own", "expected"),
    [
        ("/", "/", "cg"),
        ("/", "/system.slice/fairlead.service", "cg/system.slice/fairlead.service"),
        ("/", "/system.slice/fairlead.service/daemon", "cg/system.slice/fairlead.service"),
        ("/docker/12", "/docker/12/a", "cg/a"),
        ("/docker/12", "/elsewhere", "cg"),
    ],
)
def test_groups_are_made_below_that_of_the_service(tmp_path: Path, root: str, own: str, expected: str) -> None:
    process = machine(tmp_path, f"{root} MOUNT/cg rw - cgroup2 cgroup2 rw", f"0::{own}\n")

    assert str(tmp_path / expected / "fairlead") in find(process).why_none


def test_limits_are_files_of_version_2(tmp_path: Path) -> None:
    hierarchy = Hierarchy(tmp_path, 2, frozenset(["memory", "pids"]))

    groups = Hierarchies(hierarchy, "", (hierarchy,)).groups("lease-a", LIMITS)

    assert groups == {
        str(tmp_path / "fairlead/lease-a"): {
            "memory.max": "1073741824",
            "memory.oom.group": "1",
            "pids.max": "64",
        }
    }


def test_limits_of_version_1_are_hierarchies_of_their_own(tmp_path: Path) -> None:
    tracking, pids = Hierarchy(tmp_path / "2", 2, frozenset()), Hierarchy(tmp_path / "pids", 1, frozenset(["pids"]))
    memory = Hierarchy(tmp_path / "memory", 1, frozenset(["memory"]))

    groups = Hierarchies(tracking, "", (tracking, pids, memory)).groups("a", LIMITS)

    assert groups == {
        str(tmp_path / "2/fairlead/a"): {},
        str(tmp_path / "memory/fairlead/a"): {"memory.limit_in_bytes": "1073741824"},
        str(tmp_path / "pids/fairlead/a"): {"pids.max": "64"},
    }


def test_a_limit_that_the_machine_cannot_set_is_left_out(tmp_path: Path) -> None:
    tracking = Hierarchy(tmp_path, 2, frozenset(["pids"]))

    hierarchies = Hierarchies(tracking, "", (tracking,))

    assert not hierarchies.can_limit("memory")
    assert hierarchies.groups("a", GroupLimits(memory_bytes=1)) == {str(tmp_path / "fairlead/a"): {}}


def test_limits_are_enabled_from_the_service_down_and_then_written(tmp_path: Path) -> None:
    """The file protocol of version 2, on plain files: real ones with the controller memory are not on every machine."""
    lease = tmp_path / "fairlead/lease-a"
    lease.mkdir(parents=True)
    for path in (tmp_path / "cgroup.subtree_control", tmp_path / "fairlead/cgroup.subtree_control"):
        path.touch()
    for name in ("memory.max", "memory.oom.group"):
        (lease / name).touch()

    cgroups.make({str(lease): {"memory.max": "5", "memory.oom.group": "1"}})

    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "fairlead/cgroup.subtree_control").read_text() == "+memory"
    assert (lease / "memory.max").read_text() == "5"


def test_names_of_leases_are_valid_and_differ(tmp_path: Path) -> None:
    names = {lease_name(tmp_path / place, "memory.max" * 20, n) for place in ("a", "b") for n in (1, 2)}

    assert len(names) == 4
    assert all(len(name) < 128 and name.startswith("lease-") for name in names)


# ---- the real ones -----------------------------------------------------------------------------------------------------


@pytest.fixture
def real() -> Hierarchies:
    hierarchies = find()
    if hierarchies.tracking is None:
        pytest.skip(f"this machine has no control groups for us: {hierarchies.why_none}")
    return hierarchies


def test_a_real_group_holds_a_process_and_what_it_forks_until_it_is_killed(real: Hierarchies, tmp_path: Path) -> None:
    groups = real.groups(lease_name(tmp_path, "a", 1), GroupLimits())
    cgroups.make(groups)
    script = "import os, time\nos.fork() or os.setsid()\ntime.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", script], preexec_fn=lambda: cgroups.join(groups), env={})
    try:
        wait_for(lambda: len(cgroups.members(groups)) == 2, "a process and its child in the group")
        assert cgroups.is_populated(groups)
        cgroups.kill(groups)
        wait_for(lambda: not cgroups.is_populated(groups), "an empty group")
    finally:
        process.kill()
        process.wait()
        cgroups.remove(groups)
    assert not any(map(os.path.exists, groups))


# ---- limits of jobs ----------------------------------------------------------------------------------------------------


def run_limited(
    folder: Path, hierarchies: Hierarchies, run: str, limits: GroupLimits, **more: float
) -> tuple[int | None, str]:
    runner = LocalRunner(folder / "state", {("n", 0): 0}, hierarchies=hierarchies, limits=limits)
    lease = Lease("a", 1, (Gpu("n", "v100", 0),), Command(run, workdir=str(folder), **more))  # type: ignore[arg-type]
    runner.launch(lease)
    sights = [runner.look([lease.key]).sights[lease.key]]

    def over() -> bool:
        sights.append(runner.look([lease.key]).sights[lease.key])
        return sights[-1].condition in OVER

    wait_for(over, "the end of a lease")
    return sights[-1].code, (runner.directory(lease.key) / LOG).read_text()


def test_a_job_has_no_more_processes_than_it_may(real: Hierarchies, tmp_path: Path) -> None:
    if not real.can_limit("pids"):
        pytest.skip("this machine cannot limit the number of processes")
    script = "import os, time\nfor n in range(40):\n    print(n, flush=True)\n    os.fork() or time.sleep(600)\n"

    code, log = run_limited(tmp_path, real, f"{sys.executable} -c '{script}'", GroupLimits(processes=20))

    assert code == 1
    assert 5 < len([line for line in log.splitlines() if line.isdigit()]) < 20
    assert "Resource temporarily unavailable" in log


def test_a_job_that_uses_more_memory_than_it_may_is_killed_and_its_log_says_so(
    real: Hierarchies, tmp_path: Path
) -> None:
    if not any(one.version == 2 and "memory" in one.controllers for one in real.limiting):
        pytest.skip("this machine has no controller of version 2 for memory")

    code, log = run_limited(tmp_path, real, f"{sys.executable} -c 'bytearray(2**30)'", NO_LIMITS, memory_gib=0.0625)

    assert code == 137
    assert "reached its limit of memory" in log


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.events", "low 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n", True),
        ("memory.events", "low 0\nmax 7\noom 0\noom_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", True),
    ],
)
def test_the_kernel_says_whether_it_ran_out_of_memory(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    (tmp_path / name).write_text(text)

    assert cgroups.ran_out_of_memory([str(tmp_path)]) is expected


def test_a_job_that_asks_for_more_memory_than_the_service_allows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="asks for 16 GiB of memory, and the service allows 8 GiB"):
        run_limited(tmp_path, Hierarchies(), "true", GroupLimits.of(8.0, None), memory_gib=16.0)


def test_the_limit_of_a_job_file_counts_below_that_of_the_service(tmp_path: Path) -> None:
    hierarchy = Hierarchy(tmp_path, 2, frozenset(["memory"]))
    runner = LocalRunner(
        tmp_path, {}, hierarchies=Hierarchies(hierarchy, "", (hierarchy,)), limits=GroupLimits.of(8.0, None)
    )

    assert [runner._limits_of(stated).memory_bytes for stated in (None, 2.0)] == [8 * 2**30, 2 * 2**30]


@pytest.mark.parametrize(
    ("limits", "option"), [(GroupLimits(memory_bytes=1), "--max-memory"), (GroupLimits(processes=9), "--max-processes")]
)
def test_limits_that_cannot_be_set_here_are_refused_at_the_start(limits: GroupLimits, option: str) -> None:
    with pytest.raises(InputError, match=f"{option} needs control groups, and control groups are switched off"):
        check_limits(Hierarchies(), limits)
    check_limits(Hierarchies(), NO_LIMITS)
