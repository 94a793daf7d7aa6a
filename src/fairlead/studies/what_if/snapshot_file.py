"""The snapshot file: the state of a service at one time, with its cluster, speeds, policy and settings, on one line.

It is the first line of a journal that begins from a state, with a kind of its own.
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.rounds.beginning import beginning_to_json
from fairlead.rounds.journal import SNAPSHOT, Header, header_to_json
from fairlead.rounds.records import to_line
from fairlead.rounds.remembering import CARRIED, without_names
from fairlead.rounds.renaming import numbered_names, renamed_cluster, renamed_profile, renamed_snapshot
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import open_state

_KEPT = ("version", "sensing", "unmeasured", "all_new")  # of the header's other facts, when names must go


def snapshot_line(header: Header, state: State, *, anonymise: bool = False) -> str:
    """The content of a snapshot file. With `anonymise` no name of a job, tenant, node or model is in it."""
    header = replace(header, cluster=state.cluster)
    if anonymise:
        header, state = _without_names(header, state)
    begins = beginning_to_json(state)
    more = {key: value for key, value in header.more.items() if key not in ("trace", "begins")}
    record = header_to_json(replace(header, more={**more, "begins": begins}))
    return to_line({**record, "fairlead": SNAPSHOT}) + "\n"


def _without_names(header: Header, state: State) -> tuple[Header, State]:
    names = numbered_names(state, header.profile)
    other = replace(
        header,
        cluster=renamed_cluster(header.cluster, names),
        profile=renamed_profile(header.profile, names),
        tenant_weight={},  # the state has the weights of all tenants
        more={key: header.more[key] for key in _KEPT if key in header.more}
        | ({CARRIED: without_names(header.more[CARRIED])} if header.more.get(CARRIED) else {}),
    )
    body = renamed_snapshot(dump(state), names)
    return other, load(body, other.cluster, open_state(other).estimator)
