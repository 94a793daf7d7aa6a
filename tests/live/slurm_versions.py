"""Tests of steering and watching against the Slurm of newer Debian releases; `make slurm-versions`.

    python tests/live/slurm_versions.py trixie forky            # 24.11 and 26.05 in November 2026
    python tests/live/slurm_versions.py trixie --options=-x     # with options for pytest

The packages of a release are unpacked into build/slurm-RELEASE by debootstrap, from the mirror that apt uses, which takes
some minutes the first time. Its daemons and commands run there (chroot), with this machine's /tmp; tests and Fairlead itself
run here, and find that Slurm by their PATH. It needs root and the packages debootstrap, munge and mariadb-server.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge")
PROGRAMS = (
    *("slurmctld", "slurmd", "slurmdbd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel"),
    *("sacct", "sacctmgr", "sshare", "sdiag", "munged"),
)
# Leases are left out: their jobs need Fairlead's Python inside of the release.
TESTS = (
    "tests/engines/test_slurm_hold.py",
    "tests/live/test_slurm_steer_live.py",
    "tests/live/test_slurm_leave.py",
    "tests/service/test_shadow.py",
    "tests/engines/test_contract.py",
)
CHOSEN = "slurm-steer or not (simulated or virtual or pretend or local or warm or slurm-leases or far)"
SCRIPTS = Path("/usr/share/debootstrap/scripts")
# The mounts are those of this process and its children alone, and vanish with them.
MOUNTS = """set -e
mount --bind /tmp {release}/tmp
mount --bind /dev {release}/dev
mount -t proc proc {release}/proc
exec "$@"
"""
# Ordinary users may change their root only in a namespace of their own, in which they stay who they are. Scripts of jobs
# are in the release already, and find this folder by the PATH that they inherit if it is below /tmp.
WRAPPER = """#!/bin/sh
[ -e /unpacked ] && exec {program} "$@"
[ "$(id -u)" = 0 ] || own="--user --map-current-user"
[ -d {release}"$PWD" ] && there=$PWD || there=/
exec unshare $own --root={release} --wd="$there" {program} "$@"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("releases", nargs="+", help="names of Debian releases")
    parser.add_argument("--options", default="", help="further options for pytest")
    options = parser.parse_args()
    reason = _missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    ended = [_run(release, shlex.split(options.options)) for release in options.releases]
    return max(ended)


def _missing() -> str | None:
    if os.geteuid():
        return "chroot and mounts need root"
    absent = [name for name in ("debootstrap", "unshare", "apt-get") if shutil.which(name) is None]
    return f"{', '.join(absent)} not found; install debootstrap, on a Debian" if absent else None


def _run(release: str, options: Sequence[str]) -> int:
    folder = ROOT / "build" / f"slurm-{release}"
    if not (folder / "unpacked").exists():
        _unpack(release, folder)
    programs = _wrap(folder)
    version = subprocess.run([programs / "slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{release}: {version}", flush=True)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    mounts = MOUNTS.format(release=shlex.quote(str(folder)))
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, *TESTS, *options]
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "mounts", *tests]
    return subprocess.run(words, env=environment, cwd=ROOT, check=False).returncode


def _unpack(release: str, folder: Path) -> None:
    """Debootstrap the release. Its script is the same for all of Debian, also for a release that is newer than this one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    script = SCRIPTS / release if (SCRIPTS / release).exists() else SCRIPTS / "sid"
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", release]
    words += [str(folder), _mirror(), str(script)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (folder / "unpacked").touch()


def _mirror() -> str:
    """Where apt gets Debian's packages from on this machine."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert lines, "apt knows no mirror of Debian; run apt-get update"
    return lines[0]


def _wrap(folder: Path) -> Path:
    """A folder of programs that run those of the release."""
    programs = folder.with_name(f"{folder.name}-programs")
    programs.mkdir(exist_ok=True)
    for name in PROGRAMS:
        inside = next(_paths(folder, name))
        (programs / name).write_text(WRAPPER.format(release=shlex.quote(str(folder)), program=inside))
        (programs / name).chmod(0o755)
    return programs


def _paths(folder: Path, name: str) -> Iterator[Path]:
    return (
        Path("/", *path.parts) for path in (Path("usr/sbin", name), Path("usr/bin", name)) if (folder / path).exists()
    )


if __name__ == "__main__":
    sys.exit(main())
