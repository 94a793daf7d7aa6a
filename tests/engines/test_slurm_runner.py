"""What the runner over Slurm does where no Slurm is needed to see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.engines.leases import Gpu, Lease
from fairlead.engines.local import shim
from fairlead.engines.requests import Command
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.lease_runner import SlurmLeaseRunner
from fairlead.engines.slurm.machines import SlurmNode
from fairlead.engines.slurm.queue import SlurmJob, read_queue


def test_a_lease_that_cannot_be_revoked_now_is_not_revoked(tmp_path: Path) -> None:
    """As on a full disk. The scheduler asks again later, and does not end."""
    runner = SlurmLeaseRunner(tmp_path, Slurm(), gpus_of=dict)
    directory = runner.directory(("a", 1))
    directory.parent.mkdir(parents=True)
    directory.write_text("a file, where a directory is wanted")

    assert not runner.revoke(("a", 1))


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a program in the place of sbatch was called with: its words, then its environment."""
    program, called = tmp_path / "bin" / "sbatch", tmp_path / "called"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n(printf "%s\\n" "$@"; /usr/bin/env) > {called}\necho 7\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent))
    return called


def lease_of(command: Command, log_bytes: int | None = None) -> Lease:
    return Lease("a", 1, (Gpu("n-1", "v100", None),), command, log_bytes=log_bytes)


def test_variables_of_a_job_reach_its_program_and_not_sbatch(
    tmp_path: Path, sbatch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the service")
    variables = {"LD_LIBRARY_PATH": "/opt/job", "PATH": "/opt/job/bin", "SBATCH_QOS": "high"}
    runner = SlurmLeaseRunner(tmp_path / "state", Slurm(), gpus_of=dict)

    runner.launch(lease_of(Command("true", workdir=str(tmp_path), env=variables)))

    called = sbatch.read_text().splitlines()
    assert f"PATH={sbatch.parent}/bin" in called
    assert not any(line.startswith(("LD_LIBRARY_PATH=", "SBATCH_", "SECRET=")) for line in called)
    plan = json.loads((runner.directory(("a", 1)) / shim.LEASE).read_text())["plan"]
    assert variables.items() <= plan["env"].items()


class Running(Slurm):
    """One job of ours runs, the last that was submitted; there are no nodes."""

    def submit(self, options: Sequence[Sequence[str]], script: str, environment: dict[str, str]) -> str:
        (self.comment,) = (word.removeprefix("--comment=") for word in options[0] if word.startswith("--comment="))
        return "7"

    def queue(self, *, mine: bool = False, partition: str = "", jobs: Sequence[str] = ()) -> list[SlurmJob]:
        return read_queue(f"7|RUNNING|{self.comment}", ("JobID", "State", "Comment"), "|")

    def nodes(self) -> dict[str, SlurmNode]:
        return {}


def test_the_log_of_a_lease_is_cut_at_its_limit(tmp_path: Path) -> None:
    runner = SlurmLeaseRunner(tmp_path / "state", Running(), gpus_of=dict)
    runner.launch(lease_of(Command("true", workdir=str(tmp_path)), log_bytes=100))
    log = runner.directory(("a", 1)) / shim.LOG
    log.write_bytes(b"a" * 1000)

    runner.look([("a", 1)])

    assert log.read_bytes().startswith(b"a" * 100 + b"\nfairlead: the log ends here")


@pytest.mark.parametrize("option", ["--mem=4G", "--mem-per-gpu=4G", "--mem-per-cpu=4G"])
def test_the_memory_that_a_job_states_replaces_the_usual_one(tmp_path: Path, sbatch: Path, option: str) -> None:
    runner = SlurmLeaseRunner(tmp_path / "state", Slurm(), options=[option, "--qos=low"], gpus_of=dict)

    runner.launch(lease_of(Command("true", workdir=str(tmp_path), memory_gib=1.5)))
    stated = [word for word in sbatch.read_text().splitlines() if word.startswith(("--mem", "--qos"))]
    runner.launch(replace(lease_of(Command("true", workdir=str(tmp_path))), number=2))
    usual = [word for word in sbatch.read_text().splitlines() if word.startswith(("--mem", "--qos"))]

    assert stated == ["--mem=1536M", "--qos=low"]
    assert usual == [option, "--qos=low"]


def test_a_command_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SlurmError, match="squeue is not installed on this machine"):
        Slurm().queue()


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("squeue: error: fetch_config: DNS SRV lookup failed", "squeue finds no Slurm: this machine has no slurm.conf"),
        (
            """squeue: error: get_addr_info: getaddrinfo() failed: Name or service not known: attempt number -4
squeue: error: slurm_set_addr: Unable to resolve "head"
squeue: error: Unable to establish control machine address""",
            'its host name "head" cannot be resolved',
        ),
    ],
)
def test_names_that_cannot_be_resolved_are_a_plain_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, sentence: str
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(SlurmError) as error:
        Slurm().queue()

    assert sentence in str(error.value)
    assert "getaddrinfo" not in str(error.value)
    assert not error.value.lost, "nothing was sent"


def test_a_configuration_that_does_not_exist_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "squeue").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(SlurmError, match=r"slurm\.conf, which does not exist"):
        Slurm().queue()


def test_whether_a_command_took_effect_is_unknown_if_a_signal_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\nkill -PIPE $$\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(SlurmError) as raised:
        Slurm().run("scontrol", "release", "47")

    assert raised.value.lost


def test_a_job_cannot_change_what_slurm_has_set_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above all the devices that it may use."""
    for name, text in {"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": "1", "TMPDIR": "/local/7"}.items():
        monkeypatch.setenv(name, text)
    submitted = {"PATH": "/usr/bin", "TMPDIR": "/tmp"}
    wanted = {"PATH": "/opt/job/bin", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "TMPDIR": "/mine", "LD_LIBRARY_PATH": "/opt"}

    env = shim.batch_environment({"env": submitted | wanted, "submitted": submitted})

    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/opt/job/bin", "/opt")
    assert (env["CUDA_VISIBLE_DEVICES"], env["TMPDIR"]) == ("1", "/local/7")
