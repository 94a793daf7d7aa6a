"""The four studies by name, one at a time or all of them in parallel processes, with results that can be kept."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.studies import (
    reproduce_fft,
    reproduce_fft_claims,
    reproduce_hare,
    reproduce_hare_claims,
    reproduce_hops,
    reproduce_hops_claims,
    reproduce_oef,
    reproduce_oef_claims,
)
from fairlead.studies.claims import Study

# In the order of the page: what runs an experiment, and what puts it beside its paper.
STUDIES: dict[str, tuple[Any, Any]] = {
    "oef": (reproduce_oef, reproduce_oef_claims),
    "hare": (reproduce_hare, reproduce_hare_claims),
    "fft": (reproduce_fft, reproduce_fft_claims),
    "hops": (reproduce_hops, reproduce_hops_claims),
}
LONGEST_FIRST = ("hops", "hare", "fft", "oef")


@dataclass(frozen=True)
class Found:
    """What one study measured."""

    name: str
    scale: Any  # the study's own `Scale`
    parts: dict[str, Any]

    @property
    def study(self) -> Study:
        _, claims = STUDIES[self.name]
        return claims.study(self.scale, self.parts)  # type: ignore[no-any-return]

    @property
    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "scale": asdict(self.scale), "parts": self.parts}


def scale_of(name: str, quick: bool) -> Any:
    experiment, _ = STUDIES[name]
    return experiment.QUICK if quick else experiment.FULL


def run_study(
    name: str,
    scale: Any,
    tell: Callable[[str, int, int], None],
    table: Profile | None = None,
) -> Found:
    """Calls `tell(part, done, of)` after every part; `table` is a further table of speeds for OEF."""
    experiment, _ = STUDIES[name]
    total = experiment.parts(scale) + (table is not None)
    parts: dict[str, Any] = {}
    for part, numbers in experiment.reproduce(scale, table) if table else experiment.reproduce(scale):
        parts[part] = numbers
        tell(part, len(parts), total)
    return Found(name, scale, parts)


def run_studies(
    scales: dict[str, Any], workers: int, tell: Callable[[str, str, int, int], None], keep: Path | None = None
) -> list[Found]:
    """All of `scales` by name, in the order of the page. Calls `tell(study, part, done, of)` after every part.

    With `keep`, a study's results are written there when it ends, and taken from there if they are of the same scale.
    """
    found = {name: kept for name, scale in scales.items() if keep and (kept := _kept(keep, name, scale))}
    todo = [name for name in LONGEST_FIRST if name in scales and name not in found]
    for one in _in_processes([(name, scales[name]) for name in todo], workers, tell):
        found[one.name] = one
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{one.name}.json").write_text(json.dumps(one.as_json, indent=2, allow_nan=False) + "\n")
    return [found[name] for name in STUDIES if name in found]


def _in_processes(
    todo: Sequence[tuple[str, Any]], workers: int, tell: Callable[[str, str, int, int], None]
) -> Iterator[Found]:
    """As they end. One worker is this process itself."""
    if workers <= 1 or len(todo) <= 1:
        for name, scale in todo:
            yield run_study(name, scale, lambda part, done, of, name=name: tell(name, part, done, of))  # type: ignore[misc]
        return
    context = multiprocessing.get_context("spawn")  # shares no solver and no thread with us
    with ProcessPoolExecutor(min(workers, len(todo)), context) as pool:
        for done in as_completed([pool.submit(_run_apart, name, scale, tell) for name, scale in todo]):
            yield done.result()


def _run_apart(name: str, scale: Any, tell: Callable[[str, str, int, int], None]) -> Found:
    return run_study(name, scale, lambda part, done, of: tell(name, part, done, of))


def _kept(keep: Path, name: str, scale: Any) -> Found | None:
    path = keep / f"{name}.json"
    if not path.exists():
        return None
    try:
        read = json.loads(path.read_text())
        same = read["scale"] == json.loads(json.dumps(asdict(scale)))
        return Found(name, scale, read["parts"]) if same else None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not hold a study's results ({error}); remove it to run {name} again") from None
