"""Options of the simulated world and of its rounds, the same for every verb that simulates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import parse_pairs
from fairlead.model.errors import InputError
from fairlead.model.units import parse_duration
from fairlead.model.words import choose

if TYPE_CHECKING:
    from fairlead.rounds.loop import Settings
    from fairlead.sim.truth import World

Round = Annotated[str, typer.Option("--round", help="Length of a round.", metavar="DURATION")]
Decide = Annotated[str, typer.Option("--decide", help="Decide at `rounds` only, or at `events` inside a round too.")]
MinRun = Annotated[str, typer.Option("--min-run", help="A job keeps its GPUs at least this long.", metavar="DURATION")]
Task = Annotated[
    str,
    typer.Option("--task", help="Policies of level tasks: length of a task on the fastest type.", metavar="DURATION"),
]
RestartCost = Annotated[
    str | None,
    typer.Option("--restart-cost", help="Cost of a move, instead of each model's own.", metavar="DURATION"),
]
TenantWeights = Annotated[
    list[str] | None,
    typer.Option("--tenant-weight", help="Weight of a tenant (default 1).", metavar="TENANT=WEIGHT"),
]
ServerFactors = Annotated[
    str, typer.Option("--server-factors", help="Hidden speed of every node, uniform in LOW:HIGH.", metavar="LOW:HIGH")
]
Mtbf = Annotated[
    str, typer.Option("--mtbf", help="Mean time between failures of a node; 0 = never.", metavar="DURATION")
]
Repair = Annotated[str, typer.Option("--repair", help="Mean time to repair a node.", metavar="DURATION")]
CheckpointEvery = Annotated[
    str,
    typer.Option("--checkpoint-every", help="A failure takes a job back to its last save.", metavar="DURATION"),
]
LengthError = Annotated[
    float, typer.Option("--length-error", help="Declared lengths are off by up to this part (0.3 = 30 %).")
]
ProfilingCost = Annotated[
    str,
    typer.Option(
        "--profiling-cost",
        help="To measure a new model on one GPU type before it may run; 0 = known.",
        metavar="DURATION",
    ),
]
SkipImpossible = Annotated[bool, typer.Option("--skip-impossible", help="Leave out jobs that can never run.")]


def settings_of(round_: str, decide: str, min_run: str, task: str = "60") -> Settings:
    from fairlead.rounds.loop import Settings, When

    when = When(choose("--decide", decide, When))
    return Settings(_positive("--round", round_), when, parse_duration(min_run), task_s=_positive("--task", task))


def world_of(
    seed: int, server_factors: str, mtbf: str, repair: str, checkpoint_every: str, error: float, profiling: str
) -> World:
    from fairlead.sim.truth import World

    return World(
        seed=seed,
        server_factor=_factors(server_factors),
        mtbf_s=parse_duration(mtbf),
        repair_s=parse_duration(repair),
        checkpoint_s=parse_duration(checkpoint_every),
        length_error=error,
        profiling_s=parse_duration(profiling),
    )


def weights_of(pairs: list[str] | None) -> dict[str, float]:
    weights = {}
    for name, text in parse_pairs(pairs or [], "--tenant-weight").items():
        try:
            weights[name] = float(text)
        except ValueError:
            weights[name] = float("nan")
        if not 0 < weights[name] < 1e9:
            raise InputError(f'--tenant-weight {name}: "{text}" is not a number above 0')
    return weights


def _positive(option: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1e-3:
        raise InputError(f'{option} "{text}" must be at least a millisecond')
    return seconds


def _factors(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise InputError(f'--server-factors "{text}" is not LOW:HIGH, such as 0.75:1.05') from None
