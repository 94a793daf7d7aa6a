"""A decision as bytes and back, between processes that fold the same records.

The form is JSON followed by columns of plain numbers, so that bytes from a broken process can never run code here; what
they mean is checked by `vetting`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.outcomes import Outcomes

_WHOLE, _REAL = np.dtype("<i8"), np.dtype("<f8")
# The nodes and GPUs of all spots are in one column each; `nodes` says how many belong to each spot.
_COLUMNS = dict.fromkeys(("stop", "start", "nodes", "node", "gpus", "trials"), _WHOLE)
_ROWS = {**dict.fromkeys(("job", "reason", "wanted", "free"), _WHOLE), "a": _REAL, "b": _REAL}


def decision_to_bytes(decision: Decision) -> bytes:
    pairs = [pair for spot in decision.spots for pair in spot]
    columns: dict[str, Any] = {
        "stop": decision.stop,
        "start": decision.start,
        "nodes": [len(spot) for spot in decision.spots],
        "node": [node for node, _ in pairs],
        "gpus": [gpus for _, gpus in pairs],
        "trials": decision.trials,
    }
    head: dict[str, Any] = {
        "time_s": float(decision.time_s),
        "cause": decision.cause,
        "holds_until_s": float(decision.holds_until_s),
        "solver": decision.solver,
        "by_clock": decision.by_clock,
        "sizes": [len(values) for values in columns.values()],
    }
    parts = [np.asarray(columns[name], dtype=kind).tobytes() for name, kind in _COLUMNS.items()]
    if decision.why is not None:
        rows = decision.why.outcomes
        head["why"] = {
            "rows": len(rows.job),
            "labels": list(rows.labels),
            "terms": None if rows.terms is None else rows.terms.shape[1],
            "successors": [[int(j), [int(k) for k in others]] for j, others in decision.why.successors.items()],
            "gain": float(decision.why.gain),
        }
        parts += [np.asarray(getattr(rows, name), dtype=kind).tobytes() for name, kind in _ROWS.items()]
        parts.append(b"" if rows.terms is None else np.asarray(rows.terms, dtype=_REAL).tobytes())
    line = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((len(line).to_bytes(8, "little"), line, *parts))


def decision_from_bytes(data: bytes) -> Decision:
    """The decision. Raises ValueError, LookupError or TypeError for bytes that are none."""
    size = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + size]), _Tail(data, 8 + size)
    columns = {
        name: body.take(kind, count) for (name, kind), count in zip(_COLUMNS.items(), head["sizes"], strict=True)
    }
    pairs = zip(columns["node"].tolist(), columns["gpus"].tolist(), strict=True)
    spots = tuple(tuple(next(pairs) for _ in range(count)) for count in columns["nodes"].tolist())
    why = _why(head["why"], body) if "why" in head else None
    if body.left or next(pairs, None) is not None:
        raise ValueError("there are more bytes or nodes than expected")
    return Decision(
        time_s=float(head["time_s"]),
        cause=Cause(head["cause"]),
        stop=columns["stop"],
        start=columns["start"],
        spots=spots,
        holds_until_s=float(head["holds_until_s"]),
        solver=str(head["solver"]),
        why=why,
        trials=tuple(columns["trials"].tolist()),
        by_clock=bool(head["by_clock"]),
    )


class _Tail:
    """The columns, one after another."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, kind: np.dtype[Any], count: Any) -> Any:
        if not isinstance(count, int) or count < 0:
            raise TypeError(f"{count!r} is no number of values")
        begin, self._at = self._at, self._at + count * kind.itemsize
        values = np.frombuffer(self._data[begin : self._at], dtype=kind)
        if len(values) != count:
            raise ValueError(f"wanted {count} values; there are {len(values)}")
        return values.copy()

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def _why(head: dict[str, Any], body: _Tail) -> Why:
    rows, terms = head["rows"], head["terms"]
    values = {name: body.take(kind, rows) for name, kind in _ROWS.items()}
    own = None if terms is None else body.take(_REAL, rows * terms).reshape(rows, terms)
    outcomes = Outcomes(**values, labels=tuple(map(str, head["labels"])), terms=own)
    successors = {int(j): tuple(int(k) for k in others) for j, others in head["successors"]}
    return Why(outcomes, successors, float(head["gain"]))
