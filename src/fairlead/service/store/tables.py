"""The tables of the two files. Migrations are only ever added at the end; earlier ones never change.

Both files have the same number of migrations, which is the schema of the state directory: a file in which a schema
changes nothing has a migration without statements. `CHANGES` describes each schema for operators.
"""

from __future__ import annotations

from fairlead.service.store.database import Kind

REQUESTS = Kind(
    "requests",
    0x464C5251,  # FLRQ
    (
        """
        -- What was asked, in the order in which the scheduler takes it.
        CREATE TABLE requests (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            time_s REAL NOT NULL,
            actor TEXT NOT NULL,
            kind TEXT NOT NULL,
            target TEXT NOT NULL,
            body TEXT NOT NULL
        );
        CREATE INDEX requests_target ON requests (kind, target);
        CREATE TABLE jobs (
            number INTEGER PRIMARY KEY REFERENCES requests (number),
            id TEXT NOT NULL UNIQUE,
            tenant TEXT NOT NULL,
            name TEXT NOT NULL,
            submitted_s REAL NOT NULL,
            spec TEXT NOT NULL,
            command TEXT NOT NULL
        );
        CREATE INDEX jobs_tenant ON jobs (tenant, number);
        CREATE TABLE idempotency (
            token TEXT NOT NULL,
            key TEXT NOT NULL,
            digest TEXT NOT NULL,
            jobs TEXT NOT NULL,
            time_s REAL NOT NULL,
            PRIMARY KEY (token, key)
        ) WITHOUT ROWID;
        CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            digest BLOB NOT NULL,
            name TEXT NOT NULL,
            role TEXT NOT NULL,
            tenant TEXT,
            created_s REAL NOT NULL,
            expires_s REAL NOT NULL,
            revoked_s REAL
        ) WITHOUT ROWID;
        -- Who changed what; never changed afterwards.
        CREATE TABLE audit (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            time_s REAL NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            detail TEXT NOT NULL
        );
        """,
        """
        -- What belongs to the file as a whole: see store/identity.py.
        CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
        INSERT INTO facts VALUES ('store', lower(hex(randomblob(8)))), ('incarnation', 1), ('epoch', 0);
        -- Grows with every change: see store/commits.py. Tokens change together with the audit log.
        CREATE VIEW changes AS SELECT coalesce(sum(seq), 0) AS count FROM sqlite_sequence;
        """,
        """
        -- Jobs that are in the archive only, by the number of their request.
        CREATE TABLE archived (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            tenant TEXT NOT NULL,
            phase TEXT NOT NULL,
            end_s REAL,
            segment INTEGER NOT NULL
        );
        """,
    ),
)

EVENTS = Kind(
    "events",
    0x464C4556,  # FLEV
    (
        """
        CREATE TABLE log (
            seq INTEGER PRIMARY KEY,
            time_s REAL NOT NULL,
            kind TEXT NOT NULL,
            record TEXT NOT NULL
        );
        CREATE INDEX log_decisions ON log (seq) WHERE kind = 'decision';
        CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
        CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, time_s REAL NOT NULL, body BLOB NOT NULL);
        -- What the log comes to, for reading: see store/log.py.
        CREATE TABLE jobs (
            position INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            tenant TEXT NOT NULL,
            phase TEXT NOT NULL,
            arrival_s REAL NOT NULL,
            first_start_s REAL,
            end_s REAL,
            since_s REAL,
            type TEXT,
            gpus INTEGER NOT NULL,
            spot TEXT,
            done REAL NOT NULL,
            total REAL,
            rate REAL NOT NULL,
            at_s REAL NOT NULL,
            resume_s REAL NOT NULL,
            attained_gpu_s REAL NOT NULL,
            run_s REAL NOT NULL,
            leases INTEGER NOT NULL,
            restarts INTEGER NOT NULL,
            reason TEXT
        );
        CREATE INDEX jobs_phase ON jobs (phase, position);
        CREATE INDEX jobs_tenant ON jobs (tenant, phase, position);
        CREATE INDEX jobs_held ON jobs (position) WHERE gpus > 0;
        CREATE TABLE nodes (
            position INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            type TEXT NOT NULL,
            gpus INTEGER NOT NULL,
            free INTEGER NOT NULL,
            up INTEGER NOT NULL
        );
        CREATE TABLE tenants (name TEXT PRIMARY KEY, weight REAL NOT NULL, quotas TEXT NOT NULL) WITHOUT ROWID;
        """,
        """
        INSERT INTO facts VALUES ('incarnation', 1), ('epoch', 0);
        CREATE VIEW changes AS SELECT max(
            (SELECT coalesce(max(seq), 0) FROM log), (SELECT coalesce(max(seq), 0) FROM snapshots)
        ) AS count;
        """,
        """
        -- The sum of what archived jobs used.
        CREATE TABLE archived_use (tenant TEXT PRIMARY KEY, jobs INTEGER NOT NULL, gpu_s REAL NOT NULL) WITHOUT ROWID;
        -- Records that were archived are changes too: see store/commits.py.
        DROP VIEW changes;
        CREATE VIEW changes AS SELECT max(
            (SELECT coalesce(max(seq), 0) FROM log),
            (SELECT coalesce(max(seq), 0) FROM snapshots),
            coalesce((SELECT value FROM facts WHERE name = 'base'), 0)
        ) AS count;
        """,
    ),
)

SCHEMA = len(EVENTS.migrations)
CHANGES = {
    3: "both files get tables for jobs that are in the archive; nothing is archived by the upgrade itself",
    2: "both files get the name of the store and its incarnation, which show whether they belong together",
}
