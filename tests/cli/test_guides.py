"""The commands of the README and of the guides, as a new user would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from daemons import serving_at_home
from leftovers import end_leases
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "LANG") if name in os.environ}
    return {**kept, "PATH": path, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "OPENBLAS_NUM_THREADS": "1"}


def typed(script: str, home: Path, replaced: Sequence[tuple[str, str]] = ()) -> str:
    """Run the lines in one shell; each of `replaced` must be in them."""
    for before, after in replaced:
        assert before in script, before
        script = script.replace(before, after)
    (home / "script").write_text(script, encoding="utf-8")
    command = ["bash", "-meuo", "pipefail", "script"]
    done = subprocess.run(
        command, cwd=home, env=environment(home), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_commands_and_the_snippet_of_the_readme_run(tmp_path: Path) -> None:
    install, simulate, live = blocks("README.md", "sh")
    (snippet,) = blocks("README.md", "python")
    python = f"python - <<'SNIPPET'\n{snippet}SNIPPET\n"
    smaller = [("--jobs 300", "--jobs 40"), ("job-047", "job-09")]  # the same commands, in less time
    try:
        printed = typed(simulate + python + live, tmp_path, [*smaller, ("fairlead serve", "fairlead serve --port 0")])
    finally:
        end_leases(tmp_path / "build" / "try" / "state")

    assert "make demo" in install
    assert "\\toprule" in printed
    for file in ("run.html", "c.html"):
        assert (tmp_path / "build" / "try" / file).stat().st_size > 0


def test_the_commands_of_operators_and_engineers_run_against_a_service(tmp_path: Path) -> None:
    _, serve, rights = blocks("docs/guide-operator.md", "text")
    options = serve.strip().removeprefix("fairlead serve ").replace(" --state build/state", "").split()
    (job,) = blocks("docs/guide-engineer.md", "yaml")
    (commands,) = blocks("docs/guide-engineer.md", "text")
    table = "\n".join(
        line for line in (ROOT / "docs/guide-operator.md").read_text().splitlines() if line.startswith("|")
    )
    daily = "\n".join(
        one for one in re.findall(r"`(fairlead [^`]*)`", table) if not one.startswith(("fairlead top", "fairlead plan"))
    )
    (tmp_path / "job.yaml").write_text(job.replace("3000", "300000"), encoding="utf-8")
    try:
        with serving_at_home(tmp_path, environment(tmp_path), *options):
            # A person ends the log with Ctrl-C, and would not wait for the end of a job that is so long here.
            mine = [("fairlead logs -f $job", "timeout 3 fairlead logs -f $job || true"), ("fairlead wait $job", "")]
            everyday = [("explain JOB", "explain $job"), ("drain NODE", "drain k80-1"), ("resume NODE", "resume k80-1")]
            answers = typed(f"{rights}{commands}\n{daily}\n", tmp_path, [*mine, *everyday, ("set NAME", "set gavel")])
    finally:
        end_leases(tmp_path / "state")

    assert "vision" in answers
    assert "sharing incentive" in answers  # of the audit
