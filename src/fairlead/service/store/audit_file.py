"""The fairness audit of the log up to some record, in a file, so that an audit need not fold the whole history again.

The file holds integrals by tenant, and the state after that record. If it is missing, damaged or of another log, the
audit begins with the first record, which may be in the archive.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
from base64 import b64decode, b64encode
from contextlib import closing
from typing import Any

from fairlead.model.errors import InputError
from fairlead.rounds.journal import Header
from fairlead.rounds.snapshot import dump, load
from fairlead.service.store.archive import archived_records
from fairlead.service.store.database import open_reader
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.identity import identity_of
from fairlead.service.store.log import header_of, read_records
from fairlead.service.store.log_beginning import base_of
from fairlead.studies.fairness.journal_audit import Auditor, RunAudit
from fairlead.studies.journals.folding import open_state

KIND = "audit/2"


def audit_log(directory: StateDirectory) -> RunAudit:
    """The audit of the whole life of the service."""
    with closing(open_reader(directory.events)) as connection:
        return _up_to_now(directory, connection)[1].audit()


def store_audit(directory: StateDirectory) -> int:
    """Bring the file up to date; returns the number of the last record in it."""
    with closing(open_reader(directory.events)) as connection:
        seq, auditor = _up_to_now(directory, connection)
        facts = {
            "fairlead": KIND,
            **_mark(connection, seq),
            "ledger": auditor.to_json(),
            "snapshot": b64encode(dump(auditor.state)).decode("ascii"),
        }
    draft = directory.audit_file.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(gzip.compress(json.dumps(facts).encode(), 1))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(directory.audit_file)
    return seq


def _up_to_now(directory: StateDirectory, connection: sqlite3.Connection) -> tuple[int, Auditor]:
    header = header_of(connection)
    seq, auditor = _stored(directory, connection, header) or (0, Auditor.of(header))
    for number, record in archived_records(directory, seq, base_of(connection), auditor.state):
        auditor.fold(record)
        seq = number
    for number, record in read_records(connection, auditor.state, after=seq):
        auditor.fold(record)
        seq = number
    return seq, auditor


def _stored(directory: StateDirectory, connection: sqlite3.Connection, header: Header) -> tuple[int, Auditor] | None:
    """The audit in the file; None if it cannot be continued."""
    try:
        facts = json.loads(gzip.decompress(directory.audit_file.read_bytes()))
        mark = {name: facts[name] for name in ("seq", "store", "record")}
        if facts["fairlead"] != KIND or mark != _mark(connection, facts["seq"], archived=facts["record"]):
            return None
        state = load(b64decode(facts["snapshot"]), header.cluster, open_state(header).estimator)
        auditor = Auditor.of(header, state)
        auditor.restore(facts["ledger"])
        return int(facts["seq"]), auditor
    except (OSError, EOFError, ValueError, KeyError, TypeError, InputError):
        return None


def _mark(connection: sqlite3.Connection, seq: int, archived: str = "") -> dict[str, Any]:
    """What shows that a file was written for this log: a digest of the record. One that is archived cannot be compared."""
    row = connection.execute("SELECT record FROM log WHERE seq = ?", (seq,)).fetchone()
    identity, is_archived = identity_of(connection), seq <= base_of(connection)
    record = (
        archived if row is None and is_archived else "" if row is None else hashlib.sha256(row[0].encode()).hexdigest()
    )
    return {"seq": seq, "store": None if identity is None else [identity.store, identity.incarnation], "record": record}
