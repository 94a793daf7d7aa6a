"""What is built installs outside the checkout, and each extra brings all that its commands need and no more.

An installation is a fresh environment with the wheel and, of the libraries of this one, just those that the extra names,
so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from shutil import which

import pytest
from packaging.requirements import Requirement

from fairlead.model.extras import EXTRA_OF

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PLAIN_MB, SIMULATING_MB = 5, 250
SIMULATE = ("simulate", "--cluster", "v100:2,k80:2", "--trace", "jobs.csv", "-o", "json", "--policy")


@dataclass(frozen=True)
class Installation:
    folder: Path
    libraries: frozenset[str]

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python there: nothing of the checkout or of the environment of the tests is in reach."""
        command = [str(self.folder / "bin" / "python"), "-I", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder)

    def fairlead(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "fairlead", *words)

    def megabytes(self) -> float:
        package = sum(path.stat().st_size for path in self._site().joinpath("fairlead").rglob("*.py"))
        return (package + sum(_bytes(library) for library in self.libraries)) / 1e6

    def _site(self) -> Path:
        return self.folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"

    def fill(self, wheel: Path) -> None:
        venv.create(self.folder, symlinks=True)
        zipfile.ZipFile(wheel).extractall(self._site())
        for library in self.libraries:
            for top in {path.parts[0] for path in distribution(library).files or () if path.parts[0] != ".."}:
                if top != "__pycache__":
                    (self._site() / top).symlink_to(Path(str(distribution(library).locate_file(top))))
        (self.folder / "jobs.csv").write_text("id,model,arrival_s,gpus,steps\na,resnet50,0,1,100\nb,resnet50,0,2,50\n")


@cache
def _bytes(library: str) -> int:
    paths = [Path(str(path.locate())) for path in distribution(library).files or ()]
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())


def libraries_of(name: str, extras: frozenset[str]) -> frozenset[str]:
    """All distributions that the named extras of one require, directly or not."""
    found: set[str] = set()
    todo = [(name, extras)]
    seen = set()
    while todo:
        owner, wanted = todo.pop()
        if (owner, wanted) in seen:
            continue
        seen.add((owner, wanted))
        if owner != "fairlead":
            found.add(owner)
        for line in distribution(owner).requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                todo.append((requirement.name.lower().replace("_", "-"), frozenset(requirement.extras)))
    return frozenset(found)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, check=True, capture_output=True, cwd=ROOT)
    return folder


def install(built: Path, folder: Path, *extras: str) -> Installation:
    installation = Installation(folder / "env", libraries_of("fairlead", frozenset(extras)))
    installation.fill(next(built.glob("*.whl")))
    return installation


def test_the_plain_installation_serves_jobs_and_names_the_extra_for_everything_else(
    built: Path, tmp_path: Path
) -> None:
    plain = install(built, tmp_path)

    assert plain.libraries == frozenset()
    assert plain.megabytes() < PLAIN_MB
    done = plain.python("-c", "from fairlead import connect, lease; print(lease.should_stop(), connect.__name__)")
    assert done.stdout == "False connect\n", done.stderr
    assert "Simulate one policy on a workload" in plain.fairlead("--help").stdout  # the overview needs no library
    refused = plain.fairlead("policies")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "fairlead: this needs typer, which is not installed; run: pip install 'fairlead[sim]' (or 'fairlead[all]')\n"
    )
    failed = plain.python("-c", "import fairlead; fairlead.simulate")
    assert "this needs numpy, which is not installed; run: pip install 'fairlead[sim]'" in failed.stderr


def test_the_extra_that_simulates_is_small_and_lacks_nothing_for_it(built: Path, tmp_path: Path) -> None:
    simulating = install(built, tmp_path, "sim")

    assert simulating.megabytes() < SIMULATING_MB
    for policy in ("oef-coop", "hops", "hare"):
        done = simulating.fairlead(*SIMULATE, policy)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["jobs_finished"] == 2
    for words, library, extra in (
        (("serve", "--cluster", "v100:1", "--state", "state"), "uvicorn", "service"),
        (("demo", "--report", "page.html"), "jinja2", "report"),
    ):
        refused = simulating.fairlead(*words)
        assert refused.returncode == 1
        assert f"needs {library}, which is not installed; run: pip install 'fairlead[{extra}]'" in refused.stderr


def test_every_library_of_ours_is_in_the_extra_that_messages_name() -> None:
    distributions = {"yaml": "pyyaml"}

    for library, extra in EXTRA_OF.items():
        assert distributions.get(library, library) in libraries_of("fairlead", frozenset({extra})), (library, extra)


def test_the_source_archive_holds_what_the_wheel_is_built_from(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel, tarfile.open(next(built.glob("*.tar.gz"))) as sources:
        installed = {name for name in wheel.namelist() if name.startswith("fairlead/")}
        archived = {name.partition("/")[2].removeprefix("src/") for name in sources.getnames()}

    assert "fairlead/traces/data/default_profile.txt" in installed
    assert {name for name in installed if not name.endswith(".so")} <= archived


def test_what_a_machine_without_a_compiler_builds_decides_the_same(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sources:
        sources.extractall(tmp_path, filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "pure")]
    no_compiler = {**os.environ, "CC": str(tmp_path / "cc")}
    said = subprocess.run(
        build, check=True, capture_output=True, text=True, cwd=next(tmp_path.glob("fairlead-*")), env=no_compiler
    )
    pure = install(tmp_path / "pure", tmp_path / "without", "sim")
    usual = install(built, tmp_path / "with", "sim")
    loaded = "from fairlead.numerics.kernel import kernel; print(kernel is not None)"

    assert "installed without compiled code" in said.stderr
    assert pure.python("-c", loaded).stdout == "False\n"
    assert usual.python("-c", loaded).stdout == f"{which('cc') is not None}\n"
    journals = []
    for installation in (pure, usual):
        done = installation.fairlead(*SIMULATE, "gavel", "--journal", "journal")
        assert done.returncode == 0, done.stderr
        journals.append((installation.folder / "journal").read_bytes())
    assert journals[0] == journals[1]
