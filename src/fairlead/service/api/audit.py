"""The fairness audit of the service's own log, in a separate process because it may fold many records.

`python -m fairlead.service.api.audit DIRECTORY` prints the audit as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fairlead.service.api.apart import output_apart
from fairlead.service.store.audit_file import audit_log
from fairlead.service.store.directory import StateDirectory


async def audit_apart(directory: StateDirectory) -> Any:
    return json.loads(await output_apart(__name__, str(directory.path)))


if __name__ == "__main__":
    print(json.dumps(audit_log(StateDirectory(Path(sys.argv[1]))).to_json()))
