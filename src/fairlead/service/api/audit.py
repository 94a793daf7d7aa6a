"""The fairness audit of the service's own log, in a separate process because it may fold a long history.

`python -m fairlead.service.api.audit DIRECTORY` prints the audit as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from fairlead.service.store.database import open_reader
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.log import header_of, read_records
from fairlead.studies.fairness.journal_audit import RunAudit, audit_records
from fairlead.studies.journals.folding import open_state


async def audit_apart(directory: StateDirectory) -> Any:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead.service.api.audit", str(directory.path), stdout=asyncio.subprocess.PIPE
    )
    try:
        report, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        raise RuntimeError(f"the audit ended with code {child.returncode}")
    return json.loads(report)


def audit_log(directory: StateDirectory) -> RunAudit:
    connection = open_reader(directory.events)
    try:
        header = header_of(connection)
        return audit_records(header, lambda: (record for _, record in read_records(connection, open_state(header))))
    finally:
        connection.close()


if __name__ == "__main__":
    print(json.dumps(audit_log(StateDirectory(Path(sys.argv[1]))).to_json()))
