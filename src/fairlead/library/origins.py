"""Opens the starting point of a simulation: a journal at some time, a snapshot, a state directory, the running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError
from fairlead.model.units import parse_duration

if TYPE_CHECKING:
    from fairlead.policies.policy import Policy
    from fairlead.rounds.loop import Settings
    from fairlead.rounds.state import State
    from fairlead.studies.runs.origin import Origin


def open_origin(place: str, policy: Policy | None = None) -> Origin:
    """The origin of `--from`: FILE, FILE@TIME or a directory. `policy`: the one of the journal, if it is not registered."""
    from fairlead.studies.runs.origin import journal_origin, service_origin

    path, time_s = _split(place)
    if path.is_file():
        return journal_origin(path, time_s, policy)
    from fairlead.service.store.directory import read_directory

    return service_origin(path.name, *read_directory(path))


def open_folded(place: str) -> tuple[State, Settings]:
    """The state of `open_origin` and the settings that apply to it, without making any decision again."""
    from fairlead.studies.journals.folding import settings_at, settings_of, state_at

    path, time_s = _split(place)
    if path.is_file():
        return state_at(path, time_s), settings_at(path, time_s)
    from fairlead.service.store.directory import read_directory

    header, state = read_directory(path)
    return state, settings_of(header)


def _split(place: str) -> tuple[Path, float | None]:
    """The file or directory, which exists, and the time; None: the end."""
    path, time_s = Path(place), None
    if not path.exists() and "@" in place:
        name, _, text = place.rpartition("@")
        path, time_s = Path(name), parse_duration(text, "--from: the time")
    if path.is_file():
        return path, time_s
    if not path.is_dir():
        raise InputError(
            "there is no such file or directory; expected FILE.jsonl, FILE.jsonl@TIME, a snapshot or a state directory",
            path=place,
        )
    if time_s is not None:
        raise InputError("a service can only be continued from its last record; a time needs a journal", path=place)
    return path, time_s


def running_origin() -> Origin:
    """The state of the running service, which an admin's token may read."""
    import json

    from fairlead.rounds.journal import header_from_json
    from fairlead.service.client import Client
    from fairlead.studies.journals.folding import open_state
    from fairlead.studies.runs.origin import service_origin

    client = Client.from_environment()
    header = header_from_json(json.loads("".join(client.lines("/snapshot"))))
    return service_origin(client.url, header, open_state(header))
