"""The accounting of a Slurm for tests: slurmdbd over a private MariaDB, both in the folder of the cluster.

The database listens on a socket of its own and on no port, asks nobody for a password and does not wait for the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "sshare", "mariadbd")
TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")  # without them there are no stored procedures
HURRY = (
    "--skip-log-bin",
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=0",
)


def missing() -> str | None:
    """Why there can be no accounting here, with the remedy; None if there can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    absent += [] if TABLES.exists() else [str(TABLES)]
    return f"{', '.join(absent)} not found; install slurmdbd and mariadb-server" if absent else None


def settings(root: Path, port: int) -> dict[str, object]:
    """The lines of slurm.conf."""
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": port,
        "AccountingStoragePass": f"{root}/run/munge.sock",
        "AccountingStorageTRES": "gres/gpu",
        "AccountingStorageEnforce": "associations,limits,qos",
    }


def make(root: Path, port: int, host: str) -> None:
    """Write the configuration of slurmdbd, which must be secret, and the tables that MariaDB itself needs."""
    path = root / "slurmdbd.conf"
    lines = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={root}/run/munge.sock",
        "DbdHost": host,
        "DbdAddr": "127.0.0.1",
        "DbdPort": port,
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm",
        "PidFile": f"{root}/run/slurmdbd.pid",
        "LogFile": f"{root}/log/slurmdbd.log",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    path.chmod(0o600)
    (root / "database" / "mysql").mkdir(parents=True)
    tables = f"use mysql;\n{TABLES.read_text()}"
    subprocess.run([*database(root), "--bootstrap"], input=tables, text=True, capture_output=True, check=True)


def database(root: Path) -> list[str]:
    """The command of MariaDB."""
    return [
        "/usr/sbin/mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={root}/database",
        f"--socket={socket(root)}",
        f"--pid-file={root}/run/mariadbd.pid",
        "--skip-networking",
        "--skip-grant-tables",
        *HURRY,
    ]


def socket(root: Path) -> Path:
    return root / "run" / "mariadb.sock"
