"""Options of the simulated world and of its rounds, shared by all commands that simulate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import MeasureNew, parse_pairs
from fairlead.model.errors import InputError
from fairlead.model.units import parse_duration
from fairlead.model.words import choose

if TYPE_CHECKING:
    from fairlead.model.cluster import Cluster
    from fairlead.policies.policy import AnyPolicy
    from fairlead.rates.profile import Profile
    from fairlead.rounds.loop import Settings
    from fairlead.sim.truth import World
    from fairlead.studies.runs.simulate import Setup
    from fairlead.traces.formats import Trace


@dataclass(frozen=True)
class WorldOptions:
    """Options of rounds and of the simulated world, shared by all commands that simulate."""

    round_: Annotated[str, typer.Option("--round", help="Length of a round.", metavar="DURATION")] = "360"
    decide: Annotated[
        str, typer.Option("--decide", help="Decide at `rounds` only, or at `events` inside a round too.")
    ] = "rounds"
    min_run: Annotated[
        str, typer.Option("--min-run", help="A job keeps its GPUs at least this long.", metavar="DURATION")
    ] = "0s"
    task: Annotated[
        str,
        typer.Option(
            "--task", help="Policies of level tasks: length of a task on the fastest type.", metavar="DURATION"
        ),
    ] = "60s"
    switching: Annotated[
        str,
        typer.Option(
            "--switching",
            help="Policies of level tasks: a GPU that changes to another job pays its restart, or 3 % of a task.",
            metavar="restart|fast",
        ),
    ] = "restart"
    restart_cost: Annotated[
        str | None,
        typer.Option("--restart-cost", help="Cost of a move, instead of each model's own.", metavar="DURATION"),
    ] = None
    tenant_weight: Annotated[
        list[str] | None,
        typer.Option("--tenant-weight", help="Weight of a tenant (default 1).", metavar="TENANT=WEIGHT"),
    ] = None
    server_factors: Annotated[
        str,
        typer.Option("--server-factors", help="Hidden speed of every node, uniform in LOW:HIGH.", metavar="LOW:HIGH"),
    ] = "1:1"
    job_server_factors: Annotated[
        str,
        typer.Option(
            "--job-server-factors",
            help="Hidden speed of every job on every node, a further factor, uniform in LOW:HIGH.",
            metavar="LOW:HIGH",
        ),
    ] = "1:1"
    mtbf: Annotated[
        str, typer.Option("--mtbf", help="Mean time between failures of a node; 0 = never.", metavar="DURATION")
    ] = "0"
    repair: Annotated[str, typer.Option("--repair", help="Mean time to repair a node.", metavar="DURATION")] = "1h"
    checkpoint_every: Annotated[
        str,
        typer.Option(
            "--checkpoint-every", help="Time between checkpoints, to which a failure resets a job.", metavar="DURATION"
        ),
    ] = "30m"
    length_error: Annotated[
        float, typer.Option("--length-error", help="Largest relative error of declared lengths (0.3 = 30 %).")
    ] = 0.0
    declared_speeds: Annotated[
        list[str] | None,
        typer.Option(
            "--declared-speeds",
            help="The tenant declares its speeds this many times too high (below 1: too low), except on its slowest type.",
            metavar="TENANT=FACTOR",
        ),
    ] = None
    profiling_cost: Annotated[
        str,
        typer.Option(
            "--profiling-cost",
            help="Time to measure a new model on one GPU type before it may run; 0 = known.",
            metavar="DURATION",
        ),
    ] = "0"
    cluster_changes: Annotated[
        str | None,
        typer.Option(
            "--cluster-changes",
            help="Nodes that join, leave or lend GPUs: CSV of time, change (add|remove|usable), node, gpu, gpus.",
            metavar="FILE",
        ),
    ] = None
    placer: Annotated[
        str,
        typer.Option(
            "--placer",
            help="How GPUs are placed on nodes: packed, packed but never moved together later, packed or waiting, scattered.",
            metavar="pack|keep|strict|scatter",
        ),
    ] = "pack"
    sensing: Annotated[
        str,
        typer.Option(
            "--sensing",
            help="What is learnt about speeds from running jobs: nothing, by type, by server, or servers for all jobs.",
            metavar="table|types|servers|three-layer",
        ),
    ] = "table"
    report_every: Annotated[
        str,
        typer.Option("--report-every", help="With --sensing: time between a job's reports.", metavar="DURATION"),
    ] = "2m"
    sensing_noise: Annotated[
        float,
        typer.Option("--sensing-noise", help="With --sensing: relative standard deviation of a reported speed."),
    ] = 0.0
    all_new: Annotated[
        bool,
        typer.Option("--all-new", help="With --sensing: no model's speed is known before its jobs have run."),
    ] = False
    measure_new: MeasureNew = None
    skip_impossible: Annotated[bool, typer.Option("--skip-impossible", help="Leave out jobs that can never run.")] = (
        False
    )

    def setup(
        self,
        cluster: Cluster,
        trace: Trace,
        profile: Profile,
        policy: AnyPolicy,
        seed: int = 0,
        aliases: Mapping[str, str] | None = None,
    ) -> Setup:
        from fairlead.rates.three_layer import Sensing
        from fairlead.studies.runs.simulate import Setup
        from fairlead.traces.cluster_changes import read_changes

        self._refuse_options_without_effect()
        return Setup(
            cluster=cluster,
            trace=trace,
            profile=profile,
            policy=policy,
            settings=self.settings(),
            world=self.world(seed),
            restart_s=None if self.restart_cost is None else parse_duration(self.restart_cost),
            tenant_weight=numbers_of(self.tenant_weight, "--tenant-weight"),
            sensing=Sensing(choose("--sensing", self.sensing, Sensing)),
            all_new=self.all_new,
            changes=() if self.cluster_changes is None else read_changes(self.cluster_changes, aliases),
        )

    def settings(self) -> Settings:
        from fairlead.placement.pack import PLACERS
        from fairlead.rounds.loop import Settings, Switching, When

        return Settings(
            _positive("--round", self.round_),
            When(choose("--decide", self.decide, When)),
            parse_duration(self.min_run),
            placer=choose("--placer", self.placer, PLACERS),
            task_s=_positive("--task", self.task),
            switching=Switching(choose("--switching", self.switching, Switching)),
            trial_s=None if self.measure_new is None else parse_duration(self.measure_new),
        )

    def world(self, seed: int) -> World:
        from fairlead.sim.truth import World

        return World(
            seed=seed,
            server_factor=_factors("--server-factors", self.server_factors),
            job_server_factor=_factors("--job-server-factors", self.job_server_factors),
            mtbf_s=parse_duration(self.mtbf),
            repair_s=parse_duration(self.repair),
            checkpoint_s=parse_duration(self.checkpoint_every),
            length_error=self.length_error,
            declared_speeds=tuple(numbers_of(self.declared_speeds, "--declared-speeds").items()),
            profiling_s=parse_duration(self.profiling_cost),
            report_s=parse_duration(self.report_every),
            sensing_noise=self.sensing_noise,
        )

    def _refuse_options_without_effect(self) -> None:
        senses, fails = self.sensing != "table", parse_duration(self.mtbf) > 0
        for option, is_set, needed, has_effect in (
            ("--report-every", self.report_every != "2m", "--sensing three-layer", senses),
            ("--sensing-noise", self.sensing_noise != 0, "--sensing three-layer", senses),
            ("--measure-new", self.measure_new is not None, "--sensing three-layer", senses),
            ("--repair", self.repair != "1h", "--mtbf", fails),
        ):
            if is_set and not has_effect:
                raise InputError(f"{option} has no effect without {needed}; add that or leave {option} out")


def numbers_of(pairs: list[str] | None, option: str) -> dict[str, float]:
    """NAME=NUMBER pairs of an option, with numbers above 0."""
    numbers = {}
    for name, text in parse_pairs(pairs or [], option).items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = float("nan")
        if not 0 < numbers[name] < 1e9:
            raise InputError(f'{option} {name}: "{text}" is not a number above 0')
    return numbers


def _positive(option: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1e-3:
        raise InputError(f'{option} "{text}" must be at least a millisecond')
    return seconds


def _factors(option: str, text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise InputError(f'{option} "{text}" is not LOW:HIGH, such as 0.75:1.05') from None
