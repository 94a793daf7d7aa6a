"""Every claim of FFT's paper with its number, and the columns in which it is judged or a cause is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairlead.studies.papers.fft.calibration import ISOLATED_RUN
from fairlead.studies.papers.fft.claim_columns import (
    ABOVE_HALF,
    ALIKE,
    GAIN,
    PERCENT,
    UP_TO,
    ClaimColumn,
    ClaimLine,
)
from fairlead.studies.papers.fft.experiment import (
    CROWDED,
    CROWDED_PART,
    EMPTIER,
    EMPTIER_PARTS,
    LARGE_CROWDED,
    LARGE_CROWDED_PART,
    LARGE_PART,
    LARGE_RIVALS,
    LARGE_SCATTERED,
    LARGE_SCATTERED_PART,
    LONGER,
    LONGER_PART,
    SIMULATED_BEDS,
    SIMULATED_RIVALS,
    TRACES,
)
from fairlead.studies.papers.fft.runs import (
    ALLOX,
    BASELINES,
    FFT,
    LEAST_LOAD,
    MAX_MIN,
    RANDOM,
    RANKED,
    SHORTEST,
    scattered,
)

COSTS = (
    "equation (3) counts the cost of a slow type by volume, d W / theta, so the fast GPUs of a round go to the longest of the "
    "running jobs, and short jobs stay on a T4"
)
LOAD = "at the fitted load the backlog is short, and there is little to gain from the order of jobs"
FULL = "nearly all GPUs are busy, so a job that moves to a faster type pushes another one to a slower type"
SHORT = "jobs shorter than a round wait for its end under every policy, whatever its order"

BY_RUN = " by isolated run"  # the end of a title
ON_TRACES = " on traces 6 and 9"
BOTH = tuple(TRACES)


def _without(name: str) -> tuple[ClaimColumn, ...]:
    """A baseline with the load and with the short jobs of the fitted workload switched off."""
    return (
        ClaimColumn(f"{name} at load {CROWDED.load:g}", name, (CROWDED_PART,), cause=LOAD, instead_of=name),
        ClaimColumn(
            f"{name} with jobs from {LONGER.shortest_s:g} s", name, (LONGER_PART,), cause=SHORT, instead_of=name
        ),
    )


def contest(rivals: Sequence[str]) -> tuple[ClaimColumn, ...]:
    """The candidates for one baseline, packed and scattered, then each with a cause switched off."""
    plain = [ClaimColumn(name, name, BOTH) for name in (*rivals, *map(scattered, rivals))]
    return (*plain, *map(_ranked, plain), *(column for name in rivals for column in _without(name)))


def fairness(rivals: Sequence[str]) -> tuple[ClaimColumn, ...]:
    """The candidates for one baseline by both measures of FTF, then with our costs instead of the printed ones."""
    every = (*rivals, *map(scattered, rivals))
    plain = [ClaimColumn(name, name, BOTH) for name in every]
    by_run = [replace(one, title=f"{one.title}{BY_RUN}", ftf=ISOLATED_RUN) for one in plain]
    return (*plain, *by_run, *map(_ranked, (*plain[: len(rivals)], *by_run)))


def longer(rivals: Sequence[str]) -> tuple[ClaimColumn, ...]:
    """The candidates for one baseline without jobs that are shorter than a round, by both measures of FTF."""
    plain = [_without(name)[1] for name in rivals]
    by_run = [
        replace(
            one, title=one.title.replace(one.of, f"{one.of}{BY_RUN}"), instead_of=f"{one.of}{BY_RUN}", ftf=ISOLATED_RUN
        )
        for one in plain
    ]
    return (*plain, *by_run)


def _ranked(column: ClaimColumn) -> ClaimColumn:
    """The column for `fft-ranked` instead of `fft`, which switches the printed costs off."""
    title = f"{RANKED} against {column.title}"
    return replace(column, title=title, ours=RANKED, cause=COSTS, instead_of=column.title)


GAVEL_LINES = (
    ClaimLine("JCT", "1.46x / 1.37x", "jct_h", GAIN, (1.46, 1.37)),
    ClaimLine("longest starvation", "2.03x", "starvation_h", GAIN, 2.03),
    ClaimLine("migrations", "1.46x", "migrations", GAIN, 1.46),
)
GAVEL_FAIRNESS = (
    ClaimLine("mean FTF", "1.64x", "mean_ftf", GAIN, 1.64),
    ClaimLine("max FTF", "1.4x", "max_ftf", GAIN, 1.4),
)
TIRESIAS_LINES = (
    ClaimLine("JCT", "up to 3.15x", "jct_h", UP_TO, 3.15),
    ClaimLine("longest starvation", "6.35x", "starvation_h", GAIN, 6.35),
)
TIRESIAS_FAIRNESS = (
    ClaimLine("mean FTF", "1.67x", "mean_ftf", GAIN, 1.67),
    ClaimLine("max FTF", "2.18x", "max_ftf", GAIN, 2.18),
)
EVERY_BASELINE = tuple(name for one in BASELINES for name in (one, scattered(one)))
REST_COLUMNS = (
    *(ClaimColumn(name, name, BOTH) for name in EVERY_BASELINE),
    _ranked(ClaimColumn(ALLOX, ALLOX, BOTH)),
    *_without(ALLOX),
    *_without(RANDOM),
)
ALLOX_TITLES = tuple(column.title for column in REST_COLUMNS if column.of in (ALLOX, scattered(ALLOX)))
MAKESPAN_TITLES = tuple(column.title for column in REST_COLUMNS if column.of != ALLOX or not column.cause)
REST_LINES = (
    ClaimLine("JCT against AlloX, trace 1", "5.22x", "jct_h", GAIN, 5.22, columns=ALLOX_TITLES, settings=1),
    ClaimLine("makespan, against any baseline", "up to 3.12x", "makespan_h", UP_TO, 3.12, columns=MAKESPAN_TITLES),
)

SHARES_OF = (FFT, SHORTEST, MAX_MIN, RANDOM, LEAST_LOAD)
SHARE_COLUMNS = (
    *(ClaimColumn(name, name, BOTH) for name in SHARES_OF),
    *(ClaimColumn(f"{name}{BY_RUN}", name, BOTH, ftf=ISOLATED_RUN) for name in SHARES_OF),
    ClaimColumn(RANKED, RANKED, BOTH, cause=COSTS, instead_of=FFT),
    ClaimColumn(f"{RANKED}{BY_RUN}", RANKED, BOTH, ftf=ISOLATED_RUN, cause=COSTS, instead_of=f"{FFT}{BY_RUN}"),
    *(column for name in SHARES_OF for column in _without(name)),
)
OF_FFT, OF_GAVEL, OF_TIRESIAS = (
    tuple(column.title for column in SHARE_COLUMNS if column.of in names)
    for names in ((FFT, RANKED), (SHORTEST, MAX_MIN), (RANDOM, LEAST_LOAD))
)
SHARE_LINES = (
    ClaimLine("FTF at most 1: FFT", "70 %", "share_at_most_1", ABOVE_HALF, 0.7, PERCENT, OF_FFT),
    ClaimLine("FTF at most 1: Gavel", "38 %", "share_at_most_1", ALIKE, 0.38, PERCENT, OF_GAVEL),
    ClaimLine("FTF at most 1: Tiresias", "49 %", "share_at_most_1", ALIKE, 0.49, PERCENT, OF_TIRESIAS),
)
AT_LOW_LOAD = f"{FFT} at load {EMPTIER.load:g}"
CHANGE_COLUMNS = (
    *(ClaimColumn(name, name, BOTH) for name in (FFT, SHORTEST, MAX_MIN)),
    ClaimColumn(RANKED, RANKED, BOTH, cause=COSTS, instead_of=FFT),
    *_without(FFT),
    ClaimColumn(AT_LOW_LOAD, FFT, tuple(EMPTIER_PARTS), cause=FULL, instead_of=FFT),
)
CHANGE_LINES = (
    ClaimLine("to a faster type: FFT", "63 %", "to_faster", ABOVE_HALF, 0.63, PERCENT, (*OF_FFT, AT_LOW_LOAD)),
    ClaimLine("to a faster type: Gavel", "49 %", "to_faster", ALIKE, 0.49, PERCENT, OF_GAVEL),
)

LARGE_GAVEL_LINES = (
    ClaimLine("JCT", "up to 1.74x", "jct_h", UP_TO, 1.74),
    ClaimLine("mean FTF", "up to 2.19x", "mean_ftf", UP_TO, 2.19),
    ClaimLine("max FTF", "up to 1.99x", "max_ftf", UP_TO, 1.99),
)
LARGE_TIRESIAS_LINES = (
    ClaimLine("JCT", "up to 3.88x", "jct_h", UP_TO, 3.88),
    ClaimLine("mean FTF", "up to 2.48x", "mean_ftf", UP_TO, 2.48),
    ClaimLine("max FTF", "up to 2.52x", "max_ftf", UP_TO, 2.52),
)


def large(baseline: str) -> tuple[ClaimColumn, ...]:
    """The candidates for one baseline in the large simulation, then each with a cause switched off."""
    parts = {**dict.fromkeys(LARGE_RIVALS, LARGE_PART), **dict.fromkeys(LARGE_SCATTERED, LARGE_SCATTERED_PART)}
    plain = [ClaimColumn(name, name, (part,)) for name, part in parts.items() if baseline in name]
    by_run = [replace(one, title=f"{one.title}{BY_RUN}", ftf=ISOLATED_RUN) for one in plain]
    traces = [_on_traces(name, ftf) for ftf in ("", ISOLATED_RUN) for name in SIMULATED_RIVALS if baseline in name]
    every = (*plain, *by_run)
    return (*every, *traces, *map(_ranked, every), *(_crowded(one) for one in every if one.of in LARGE_CROWDED))


def _on_traces(name: str, ftf: str) -> ClaimColumn:
    """The column for two of the traces that the paper simulates."""
    return ClaimColumn(f"{name}{BY_RUN if ftf else ''}{ON_TRACES}", name, tuple(SIMULATED_BEDS), ftf=ftf)


def _crowded(column: ClaimColumn) -> ClaimColumn:
    """The column at a higher load."""
    title = f"{column.title} at load {CROWDED.load:g}"
    return replace(column, title=title, settings=(LARGE_CROWDED_PART,), cause=LOAD, instead_of=column.title)
