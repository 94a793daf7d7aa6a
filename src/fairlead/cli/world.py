"""Options of the simulated world and of its rounds, shared by all commands that simulate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import CheckShare, MeasureNew, PreemptionLimit, TenantPreemptionLimit
from fairlead.library.rules import WorldRules
from fairlead.model.trial_jobs import CHECK_SHARE

if TYPE_CHECKING:
    from fairlead.rounds.loop import Settings
    from fairlead.sim.truth import World


@dataclass(frozen=True)
class WorldOptions:
    """Options of rounds and of the simulated world, shared by all commands that simulate."""

    round_: Annotated[
        str, typer.Option("--round", help="Length of a round; 60s in `fairlead serve`.", metavar="DURATION")
    ] = "360"
    decide: Annotated[
        str,
        typer.Option(
            "--decide", help="Decide at `rounds` only, or at `events` inside a round too, as `fairlead serve` does."
        ),
    ] = "rounds"
    min_run: Annotated[
        str,
        typer.Option(
            "--min-run", help="A job keeps its GPUs at least this long; 60s in `fairlead serve`.", metavar="DURATION"
        ),
    ] = "0s"
    preemption_limit: PreemptionLimit = None
    tenant_preemption_limit: TenantPreemptionLimit = None
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
    start_cost: Annotated[
        str,
        typer.Option(
            "--start-cost",
            help="Time from the decision to start a new job until it works; moves have their restart cost.",
            metavar="DURATION",
        ),
    ] = "0"
    notice: Annotated[
        str,
        typer.Option(
            "--notice", help="Time until the scheduler knows that a job has arrived or ended.", metavar="DURATION"
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
            help="How GPUs are placed on nodes: packed, packed but never moved together later, packed or waiting, "
            "the same with wide gangs on whole nodes, scattered.",
            metavar="pack|keep|strict|whole|scatter",
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
    check_share: CheckShare = CHECK_SHARE
    skip_impossible: Annotated[bool, typer.Option("--skip-impossible", help="Leave out jobs that can never run.")] = (
        False
    )

    def given(self) -> dict[str, Any]:
        """The options by their names, as the functions of the library take them."""
        return {field.name.rstrip("_"): getattr(self, field.name) for field in fields(self)}

    def rules(self) -> WorldRules:
        return WorldRules(**self.given())

    def settings(self) -> Settings:
        return self.rules().settings()

    def world(self, seed: int) -> World:
        return self.rules().world(seed)
