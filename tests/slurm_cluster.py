"""A real Slurm of several nodes on this machine, in a temporary folder and on free ports, for tests.

It needs Debian's slurmctld, slurmd, slurm-client and munge, and root for the devices of its pretended GPUs. Everything is
stopped by pid when the test process ends, unless that is killed.

On request it has accounting (which takes seconds to start) and the configuration that `fairlead slurm setup` prints.
Its users are accounts that every Debian has, so that no test changes /etc/passwd.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import slurm_database
from fairlead.engines.slurm.setup import job_submit_lua
from waiting import PATIENCE_S, wait_for

USERS = ("games", "news", "backup")  # ordinary people: root is Slurm's administrator
OPERATOR = "list"  # as whom Fairlead steers, if not as root
STEERED = "fair"  # the partition that Fairlead steers; the other one is `all`, on the same nodes
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
GPUS_AT_MOST = 8  # of a node
NEWER = (23, 2)  # the version of Slurm from which on some settings are others


def missing(*, accounting: bool = False) -> str | None:
    """Why no cluster can be started here, with the remedy; None if one can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if absent:
        return f"{', '.join(absent)} not found; install slurmctld, slurmd, slurm-client and munge"
    if os.geteuid():
        return "a Slurm with pretended GPUs needs root, for mknod"
    strangers = [user for user in (*USERS, OPERATOR) if user not in {account.pw_name for account in pwd.getpwall()}]
    if accounting and strangers:
        return f"no user {', '.join(strangers)}, which Debian has; create them"
    return slurm_database.missing() if accounting else None


@cache
def steered_cluster() -> SlurmCluster:
    """Three nodes with accounting and the steered partition, one for each test process; tests leave it empty.

    Account vision has three shares and the users games and backup, account speech one share and the user news.
    """
    cluster = SlurmCluster(
        [TestNode("v100-1", "v100", 4), TestNode("v100-2", "v100", 4), TestNode("k80-1", "k80", 2)],
        accounting=True,
        steering=True,
    )
    cluster.account("add", "account", "vision", "fairshare=3")
    cluster.account("add", "account", "speech", "fairshare=1")
    cluster.account("add", "user", "games,backup", "account=vision")
    cluster.account("add", "user", "news", "account=speech")
    cluster.account("add", "user", OPERATOR, "account=root", "AdminLevel=Operator")
    return cluster


@dataclass(frozen=True)
class TestNode:
    __test__ = False

    name: str
    type: str
    gpus: int


class SlurmCluster:
    """A running cluster. `environment` is that of commands which should reach it.

    `accounting` starts slurmdbd: without an association that `sacctmgr` made, nobody but root may submit jobs then.
    `steering` adds the partition STEERED, whose jobs wait on hold until root or OPERATOR releases them.
    """

    def __init__(
        self,
        nodes: Sequence[TestNode],
        settings: Mapping[str, str] | None = None,
        *,
        accounting: bool = False,
        steering: bool = False,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fl-slurm-", dir="/tmp"))  # short: sockets have short paths
        self.root.chmod(0o755)
        self.nodes = {node.name: node for node in nodes}
        self._settings = dict(settings or {})
        self._accounting, self._steering = accounting, steering
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with free_ports(len(nodes) + 2) as ports:
            self._controller_port, self._accounting_port, *self._node_ports = ports
        self.environment = {**os.environ, "SLURM_CONF": str(self.root / "slurm.conf")}
        self.environment["PATH"] += ":/usr/sbin"
        atexit.register(self.stop)
        self._make()
        self._start("munged", self._munge())
        if accounting:
            self._start_accounting()
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        wait_for(lambda: self._idle() == len(self.nodes), "all nodes of Slurm to be idle")

    # ---- what tests do ---------------------------------------------------------------------------------------------

    def run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert not check or not done.returncode, f"{words} ended with {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout

    def run_as(self, user: str, *words: str, check: bool = True) -> str:
        """What the command of a user prints, errors included. It runs in a folder that is the user's home."""
        account = pwd.getpwnam(user)
        done = subprocess.run(
            words,
            env=self.environment | {"HOME": str(self.home(user)), "USER": user, "LOGNAME": user},
            cwd=self.home(user),
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert not check or not done.returncode, f"{words} of {user} ended with {done.returncode}: {done.stdout}"
        return done.stdout

    def submit(self, user: str, script: str, *options: str) -> str:
        """The number of the user's new job, whose script is a piece of shell."""
        return self.run_as(user, "sbatch", "--parsable", *options, f"--wrap={script}").strip()

    def home(self, user: str) -> Path:
        """A folder that belongs to the user and that all can read."""
        path = self.root / "home" / user
        if not path.exists():
            path.mkdir(parents=True)
            os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return path

    def account(self, *words: str) -> None:
        """`sacctmgr` without questions: `account("add", "user", "games", "account=vision", "fairshare=3")`."""
        self.run("sacctmgr", "--immediate", *words)

    def start_database(self) -> None:
        """slurmdbd, at first and after it was killed."""
        self._start("slurmdbd", ["slurmdbd", "-D"])
        wait_for(self._makes_accounts, "slurmdbd")

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.root / "slurm.conf")])

    def start_node(self, name: str) -> None:
        self._start(f"slurmd-{name}", ["slurmd", "-D", "-f", str(self.root / "slurm.conf"), "-N", name])

    def kill(self, what: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """With -9 (after TERM a daemon saves its state): `slurmctld`, `slurmdbd`, or `slurmd-NODE`."""
        process = self._processes.pop(what)
        process.send_signal(with_signal)
        process.wait()

    def wait_until_saved(self) -> None:
        """Wait until slurmctld has written down what it knows now.

        It does so within seconds of a change. What came after that is lost with `kill("slurmctld")`: a job that it
        does not know as running is ended, and its number is given to another one.
        """
        mark = f"saved-{time.monotonic_ns()}"
        jobs = self.run("squeue", "-h", "-a", "-o", "%A").split()
        for job in jobs:
            self.run("scontrol", "update", f"jobid={job}", f"admincomment={mark}")
        for node in self.nodes:
            self.run("scontrol", "update", f"nodename={node}", f"comment={mark}")
        files = [self.root / "state" / name for name in ("node_state", *(["job_state"] if jobs else []))]
        wait_for(lambda: all(mark.encode() in file.read_bytes() for file in files), "Slurm to save its state")

    def clear(self) -> None:
        """Cancel every job and bring every node back; returns when nothing is left."""
        for name in self.nodes:
            if f"slurmd-{name}" not in self._processes:
                self.start_node(name)

        def cleared() -> bool:
            self._cancel_all()
            if self._idle() < len(self.nodes):
                for name in self.nodes:
                    self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
            return not self.run("squeue", "-h", "-a").strip() and self._idle() == len(self.nodes)

        wait_for(cleared, "Slurm to be empty")

    def stop(self) -> None:
        atexit.unregister(self.stop)
        with suppress(AssertionError, subprocess.SubprocessError, OSError):
            self._cancel_all()
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in reversed(self._processes.values()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    def _cancel_all(self) -> None:
        for user in ("root", *USERS, OPERATOR):
            self.run("scancel", "--full", "--signal=KILL", f"--user={user}", check=False)
            self.run("scancel", f"--user={user}", check=False)

    # ---- how it is made --------------------------------------------------------------------------------------------

    def _make(self) -> None:
        for folder in ("state", "spool", "log", "run", "dev", "munge"):
            (self.root / folder).mkdir()
        (self.root / "munge").chmod(0o700)
        (self.root / "munge" / "key").write_bytes(os.urandom(128))
        (self.root / "munge" / "key").chmod(0o600)
        for number in range(GPUS_AT_MOST):
            os.mknod(self.root / "dev" / f"nvidia{number}", 0o666 | 0o020000, os.makedev(1, 3))  # as /dev/null
        (self.root / "slurm.conf").write_text(self._configuration())
        lines = [
            f"NodeName={node.name} Name=gpu Type={node.type} File={self.root}/dev/nvidia[0-{node.gpus - 1}]"
            for node in self.nodes.values()
        ]
        (self.root / "gres.conf").write_text("\n".join(["AutoDetect=off", *lines, ""]))
        if version() >= NEWER:
            (self.root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")  # there may be no cgroups here
        if self._steering:
            script = job_submit_lua(STEERED, [pwd.getpwnam(OPERATOR).pw_uid])
            (self.root / "job_submit.lua").write_text(script)

    def _start_accounting(self) -> None:
        self.environment["MYSQL_UNIX_PORT"] = str(slurm_database.socket(self.root))
        slurm_database.make(self.root, self._accounting_port, _host())
        self._start("mariadbd", slurm_database.database(self.root))
        wait_for(slurm_database.socket(self.root).exists, "MariaDB")
        self.start_database()

    def _makes_accounts(self) -> bool:
        """The administrator and the cluster are in the database, as slurmctld wants them."""
        self.run("sacctmgr", "--immediate", "add", "cluster", "test", check=False)
        return "test" in self.run("sacctmgr", "-nP", "show", "cluster", check=False)

    def _configuration(self) -> str:
        host, root = _host(), self.root
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": self._controller_port,
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={root}/run/munge.sock,cred_expire=5",
            "CredType": "cred/munge",
            "CommunicationParameters": "NoAddrCache",
            "StateSaveLocation": f"{root}/state",
            "SlurmdSpoolDir": f"{root}/spool/%n",
            "SlurmctldPidFile": f"{root}/run/slurmctld.pid",
            "SlurmdPidFile": f"{root}/run/slurmd-%n.pid",
            "ProctrackType": "proctrack/linuxproc",  # finds processes in whatever group, as cgroups do
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "JobCompType": "jobcomp/none",
            "MpiDefault": "none",
            "SwitchType": "switch/none",
            "ReturnToService": 1,  # a node that an operator sets down stays down
            "SlurmdParameters": "config_overrides",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_min_interval=0,batch_sched_delay=0,sched_interval=2,bf_interval=1",
            "PriorityType": "priority/basic",
            "PreemptMode": "OFF",
            "JobRequeue": 1,
            "GresTypes": "gpu",
            "SlurmctldTimeout": 10,
            "SlurmdTimeout": 6,
            "InactiveLimit": 0,
            "KillWait": 3,
            "MinJobAge": 300,
            "MessageTimeout": 10,
            "TCPTimeout": 2,
            **(slurm_database.settings(root, self._accounting_port) if self._accounting else {}),
            **({"RequeueExitHold": 85, "JobSubmitPlugins": "lua"} if self._steering else {}),
            **self._settings,
        }
        for name in () if version() < NEWER else ("CommunicationParameters", "SwitchType", "JobAcctGatherType"):
            del settings[name]  # not every newer version accepts these values
        nodes = [
            f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=16000 "
            f"Gres=gpu:{node.type}:{node.gpus} Feature={node.type} State=UNKNOWN"
            for node, port in zip(self.nodes.values(), self._node_ports, strict=True)
        ]
        partitions = ["PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"]
        if self._steering:
            partitions.append(f"PartitionName={STEERED} Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP")
        return "\n".join([*(f"{key}={value}" for key, value in settings.items()), *nodes, *partitions, ""])

    def _munge(self) -> list[str]:
        run, munge = self.root / "run", self.root / "munge"
        return [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={munge}/key",
            f"--socket={run}/munge.sock",
            f"--pid-file={run}/munged.pid",
            f"--log-file={self.root}/log/munged.log",
            f"--seed-file={munge}/seed",
            "--num-threads=2",
        ]

    def _start(self, name: str, words: list[str]) -> None:
        with (self.root / "log" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if name == "munged":
            wait_for(lambda: (self.root / "run" / "munge.sock").exists(), "munged")

    def _idle(self) -> int:
        states = set(self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).split("\n"))  # a line per partition
        return sum(state.endswith(" idle") for state in states)


@cache
def version() -> tuple[int, ...]:
    """That of the Slurm that the PATH leads to, such as (22, 5)."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    words = [shutil.which("slurmctld", path=path) or "slurmctld", "-V"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout  # slurm-wlm 22.05.8
    return tuple(int(part) for part in text.split()[-1].split(".")[:2])


def _host() -> str:
    return socket.gethostname().partition(".")[0]


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Ports that are free now, for programs that cannot choose their own."""
    with ExitStack() as held:
        sockets = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    yield ports
