"""The thin shell around Slurm's commands: it runs them with a time limit and a clean environment, and leaves reading to others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from fairlead.engines.slurm import machines, queue
from fairlead.engines.slurm.config import SlurmConfig, SlurmPartition, read_config, read_partitions
from fairlead.engines.slurm.machines import SlurmNode, read_nodes
from fairlead.engines.slurm.queue import SlurmJob, read_queue
from fairlead.engines.slurm.tables import format_of
from fairlead.model.errors import FairleadError

TIMEOUT_S = 20.0
_PREFIXES = ("SQUEUE_", "SINFO_", "SBATCH_", "SCANCEL_", "SLURM_")  # defaults of the user that change what we ask for
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


class SlurmError(FairleadError):
    """A command of Slurm failed, or the controller did not answer; whether it took effect is unknown if `lost`."""

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


class Slurm:
    """The commands that we use, of the Slurm that this machine is configured for."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s

    def queue(self, *, mine: bool = False, partition: str = "", jobs: Sequence[str] = ()) -> list[SlurmJob]:
        """All jobs that Slurm still remembers, or only those of this user, of one partition, or these."""
        words = ["squeue", "--noheader", "--array", "--states=all", *(["--me"] if mine else ["--all"])]
        words += [f"--partition={partition}"] if partition else []
        words += [f"--jobs={','.join(jobs)}"] if jobs else []
        return read_queue(self.run(*words, "--Format", format_of(queue.COLUMNS)))

    def job(self, id_: str) -> SlurmJob | None:
        """One job as it is now; None if Slurm does not know it."""
        try:
            jobs = self.queue(jobs=[id_])
        except SlurmError as error:
            if _UNKNOWN_JOB in str(error):
                return None
            raise
        return next((job for job in jobs if job.id == id_), None)

    def nodes(self) -> dict[str, SlurmNode]:
        return read_nodes(self.run("sinfo", "--noheader", "--all", "--Node", "--Format", format_of(machines.COLUMNS)))

    def config(self) -> SlurmConfig:
        return read_config(self.run("scontrol", "show", "config"))

    def partitions(self) -> dict[str, SlurmPartition]:
        """All partitions by name, hidden ones too."""
        return read_partitions(self.run("scontrol", "--all", "show", "partition"))

    def submit(self, options: Sequence[Sequence[str]], script: str, environment: dict[str, str]) -> str:
        """The number of the new job. Several sets of options make a heterogeneous job of as many components."""
        words = [word for component in options for word in (":", *component)][1:]
        output = self.run("sbatch", "--parsable", *words, script, environment=environment)
        return output.strip().partition(";")[0]

    def signal(self, number: str, signal_: str, *, batch: bool) -> None:
        """Signal the steps of a job, or its batch shell alone."""
        self.run("scancel", f"--signal={signal_}", *(["--batch"] if batch else []), number)

    def cancel(self, number: str) -> None:
        self.run("scancel", number)

    def kill(self, number: str) -> None:
        """End all processes of a job without the pause that a plain cancellation grants them."""
        self.run("scancel", "--full", "--signal=KILL", number)
        self.run("scancel", number)

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        """What the command printed. SlurmError if it failed or took too long.

        `sbatch` passes its environment on, so that it gets one of its own, which does not choose its program.
        """
        env = {name: text for name, text in os.environ.items() if not name.startswith(_PREFIXES) or name in _KEPT}
        env |= {"LC_ALL": "C.UTF-8", "TZ": "UTC"}  # times without a zone are UTC
        if environment is not None:
            env = {name: env[name] for name in _KEPT if name in env} | environment
        program = shutil.which(words[0])
        if program is None:
            raise SlurmError(f"{words[0]} is not installed on this machine; install Slurm's client commands")
        if env.get("SLURM_CONF") and not os.path.exists(env["SLURM_CONF"]):  # Slurm would look for it for a minute
            raise SlurmError(
                f"{words[0]} needs {env['SLURM_CONF']}, which does not exist; set SLURM_CONF to slurm.conf"
            )
        try:
            done = subprocess.run(
                [program, *words[1:]],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{words[0]} did not answer within {self._timeout_s:g} s", lost=True) from None
        except OSError as error:
            raise SlurmError(f"{words[0]} cannot be started: {error.strerror}") from None
        if done.returncode:
            reason = _printed(done.stderr) or _printed(done.stdout) or f"exit code {done.returncode}"
            plain = _without_address(done.stderr.decode(errors="replace"))
            if plain is not None:
                raise SlurmError(f"{words[0]} {plain}")
            killed = done.returncode < 0  # such as by PIPE when a busy controller hangs up
            raise SlurmError(f"{words[0]}: {reason}", lost=killed or any(sign in reason for sign in _UNREACHABLE))
        return done.stdout.decode(errors="replace")


_UNKNOWN_JOB = "Invalid job id"  # part of a message
# Parts of messages after which a command may have taken effect although it failed.
_UNREACHABLE = ("Unable to contact", "timed out", "Socket", "Connection", "Communication", "slurm_persist")


def _without_address(errors: str) -> str | None:
    """A sentence in place of Slurm's messages about names that cannot be resolved; None if they are about another thing.

    Nothing was sent to the controller then.
    """
    if "DNS SRV" in errors or "configuration source" in errors:
        return (
            "finds no Slurm: this machine has no slurm.conf, and DNS names no controller; call it where Slurm's commands "
            "work, or set SLURM_CONF"
        )
    host = re.search(r'Unable to resolve "([^"]*)"', errors)
    if host or "getaddrinfo" in errors:
        name = f' "{host[1]}"' if host else ""
        return f"cannot reach the controller: its host name{name} cannot be resolved; check SlurmctldHost and the DNS"
    return None


def _printed(output: bytes) -> str:
    lines = [line.split("error: ", 1)[-1] for line in output.decode(errors="replace").splitlines() if line.strip()]
    return "; ".join(lines)[-500:]
