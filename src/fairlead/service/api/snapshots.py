"""The state of the service as a snapshot file, in a separate process because it may fold many records.

`python -m fairlead.service.api.snapshots DIRECTORY [anonymise]` prints it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.service.api.apart import output_apart
from fairlead.service.store.directory import StateDirectory, read_directory
from fairlead.studies.what_if.snapshot_file import snapshot_line

_ANONYMISE = "anonymise"


async def snapshot_apart(directory: StateDirectory, *, anonymise: bool) -> bytes:
    return await output_apart(__name__, str(directory.path), *([_ANONYMISE] if anonymise else ()))


if __name__ == "__main__":
    sys.stdout.write(snapshot_line(*read_directory(Path(sys.argv[1])), anonymise=_ANONYMISE in sys.argv[2:]))
