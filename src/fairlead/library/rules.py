"""The rules of a simulation: rounds, the world and what is hidden in it, as options with the names of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from fairlead.model.errors import InputError
from fairlead.model.trial_jobs import CHECK_SHARE
from fairlead.model.units import parse_duration, parse_gpu_time, positive_duration
from fairlead.model.words import choose, parse_pairs

if TYPE_CHECKING:
    from fairlead.model.cluster import Cluster
    from fairlead.policies.policy import AnyPolicy
    from fairlead.rates.profile import Profile
    from fairlead.rounds.loop import Settings
    from fairlead.sim.truth import World
    from fairlead.studies.runs.simulate import Setup
    from fairlead.traces.formats import Trace

Duration = str | float  # seconds, or text such as "30m"
Numbers = Mapping[str, float] | Sequence[str] | None  # by tenant: {"vision": 2}, or words such as "vision=2"
Factors = str | tuple[float, float]  # LOW:HIGH


class RuleOptions(TypedDict, total=False):
    """The rules as keywords; `WorldRules` has the defaults and the meanings."""

    round: Duration
    decide: str
    min_run: Duration
    task: Duration
    switching: str
    restart_cost: Duration | None
    tenant_weight: Numbers
    server_factors: Factors
    job_server_factors: Factors
    mtbf: Duration
    repair: Duration
    checkpoint_every: Duration
    length_error: float
    declared_speeds: Numbers
    profiling_cost: Duration
    start_cost: Duration
    notice: Duration
    cluster_changes: str | None
    placer: str
    sensing: str
    report_every: Duration
    sensing_noise: float
    all_new: bool
    measure_new: Duration | None
    check_share: float
    preemption_limit: str | None
    tenant_preemption_limit: str | None
    skip_impossible: bool


@dataclass(frozen=True, kw_only=True)
class WorldRules:
    """Options of rounds and of the simulated world, with their defaults; `fairlead simulate --help` explains each."""

    round: Duration = "360"
    decide: str = "rounds"  # or `events`, inside a round too
    min_run: Duration = "0s"  # a job keeps its GPUs at least this long
    task: Duration = "60s"  # policies of single tasks: length of a task on the fastest type
    switching: str = "restart"  # policies of single tasks; or `fast`
    restart_cost: Duration | None = None  # each model's own
    tenant_weight: Numbers = None
    server_factors: Factors = "1:1"  # hidden speed of every node
    job_server_factors: Factors = "1:1"  # hidden speed of every job on every node
    mtbf: Duration = "0"  # of a node; 0: never
    repair: Duration = "1h"
    checkpoint_every: Duration = "30m"
    length_error: float = 0.0  # largest relative error of declared lengths
    declared_speeds: Numbers = None
    profiling_cost: Duration = "0"
    start_cost: Duration = "0"
    notice: Duration = "0"
    cluster_changes: str | None = None  # a file
    placer: str = "pack"  # keep, strict, whole, scatter
    sensing: str = "table"  # types, servers, three-layer
    report_every: Duration = "2m"
    sensing_noise: float = 0.0
    all_new: bool = False  # no model's speed is known before its jobs have run
    measure_new: Duration | None = None
    check_share: float = CHECK_SHARE
    preemption_limit: str | None = None  # GPU time that pre-emption may cost in an hour, such as 2gpu-h/h
    tenant_preemption_limit: str | None = None  # the same for the jobs of any one tenant
    skip_impossible: bool = False  # leave out jobs that can never run

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
            restart_s=None if self.restart_cost is None else parse_duration(self.restart_cost, "--restart-cost"),
            tenant_weight=numbers_of(self.tenant_weight, "--tenant-weight"),
            sensing=Sensing(choose("--sensing", self.sensing, Sensing)),
            all_new=self.all_new,
            changes=() if self.cluster_changes is None else read_changes(self.cluster_changes, aliases),
        )

    def settings(self) -> Settings:
        from fairlead.placement.pack import PLACERS
        from fairlead.rounds.loop import Settings, Switching, When

        return Settings(
            positive_duration("--round", self.round),
            When(choose("--decide", self.decide, When)),
            parse_duration(self.min_run, "--min-run"),
            placer=choose("--placer", self.placer, PLACERS),
            task_s=positive_duration("--task", self.task),
            switching=Switching(choose("--switching", self.switching, Switching)),
            trial_s=None if self.measure_new is None else parse_duration(self.measure_new, "--measure-new"),
            check_share=self.check_share,
            preemption_gpu_s=gpu_time("--preemption-limit", self.preemption_limit),
            tenant_preemption_gpu_s=gpu_time("--tenant-preemption-limit", self.tenant_preemption_limit),
        )

    def world(self, seed: int) -> World:
        from fairlead.sim.truth import World

        return World(
            seed=seed,
            server_factor=_factors("--server-factors", self.server_factors),
            job_server_factor=_factors("--job-server-factors", self.job_server_factors),
            mtbf_s=parse_duration(self.mtbf, "--mtbf"),
            repair_s=parse_duration(self.repair, "--repair"),
            checkpoint_s=parse_duration(self.checkpoint_every, "--checkpoint-every"),
            length_error=self.length_error,
            declared_speeds=tuple(numbers_of(self.declared_speeds, "--declared-speeds").items()),
            profiling_s=parse_duration(self.profiling_cost, "--profiling-cost"),
            report_s=parse_duration(self.report_every, "--report-every"),
            sensing_noise=self.sensing_noise,
            start_s=parse_duration(self.start_cost, "--start-cost"),
            notice_s=parse_duration(self.notice, "--notice"),
        )

    def refuse_task_options(self, policies: Iterable[AnyPolicy]) -> None:
        """Refuse options of single tasks if no policy decides them."""
        from fairlead.policies.policy import TaskPolicy

        if any(isinstance(policy, TaskPolicy) for policy in policies):
            return
        for option, value, usual in (("--task", self.task, "60s"), ("--switching", self.switching, "restart")):
            if value != usual:
                raise InputError(
                    f"{option} has no effect: it is for policies that decide single tasks, such as hare and hlas; "
                    f"leave {option} out"
                )

    def _refuse_options_without_effect(self) -> None:
        senses, fails = self.sensing != "table", parse_duration(self.mtbf, "--mtbf") > 0
        for option, is_set, needed, has_effect in (
            ("--report-every", self.report_every != "2m", "--sensing three-layer", senses),
            ("--sensing-noise", self.sensing_noise != 0, "--sensing three-layer", senses),
            ("--measure-new", self.measure_new is not None, "--sensing three-layer", senses),
            ("--check-share", self.check_share != CHECK_SHARE, "--sensing three-layer", senses),
            ("--repair", self.repair != "1h", "--mtbf", fails),
        ):
            if is_set and not has_effect:
                raise InputError(f"{option} has no effect without {needed}; add that or leave {option} out")


def gpu_time(option: str, text: str | None) -> float | None:
    """GPU-seconds in an hour of an option that may be left out."""
    return None if text is None else parse_gpu_time(text, option)


def numbers_of(pairs: Numbers, option: str) -> dict[str, float]:
    """NAME=NUMBER pairs of an option, or a mapping, with numbers above 0."""
    numbers = {}
    texts: Mapping[str, str | float] = pairs if isinstance(pairs, Mapping) else parse_pairs(pairs or [], option)
    for name, text in texts.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = float("nan")
        if not 0 < numbers[name] < 1e9:
            raise InputError(f'{option} {name}: "{text}" is not a number above 0')
    return numbers


def _factors(option: str, factors: Factors) -> tuple[float, float]:
    if not isinstance(factors, str):
        return factors
    low, _, high = factors.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise InputError(f'{option} "{factors}" is not LOW:HIGH, such as 0.75:1.05') from None
