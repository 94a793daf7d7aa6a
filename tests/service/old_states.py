"""State directories of earlier versions, kept as test data: a service that was killed, with leases of the local engine."""

from __future__ import annotations

import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"


def unpack(folder: Path, schema: int = 1) -> Path:
    """The state directory of that schema below `folder`.

    Schema 1 has 34 jobs: 17 finished, 3 failed, 1 cancelled, 1 held, 3 running, 4 waiting and 5 that the scheduler had
    not taken; a tenant with a weight and quotas, a second policy, a node that was added and one that was drained. Both
    files have pages in their write-ahead logs only.
    """
    with tarfile.open(DATA / f"state-{schema}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "state"
