"""A journal folded into the state that its run had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.state import State


def open_state(header: Header) -> State:
    """An empty state that knows what the run knew."""
    sensing = Sensing(header.more.get("sensing", Sensing.TABLE))
    estimator = build_estimator(
        header.profile, header.cluster, header.restart_s, sensing, unmeasured=bool(header.more.get("unmeasured"))
    )
    return State(header.cluster, estimator, header.tenant_weight)


def fold_journal(path: Path) -> State:
    reader = JournalReader(path)
    state = open_state(reader.header())
    with consistent(path):
        for record in reader.records():
            state.fold(record)
    return state


@contextmanager
def consistent(path: Path) -> Iterator[None]:
    """A journal whose records contradict each other is a bad file, not a bug."""
    try:
        yield
    except BrokenInvariantError as error:
        raise InputError(f"the journal contradicts itself: {error}", path=str(path)) from None
