"""The settings on which the policy `fairlead` is held against all others; docs/policy-fairlead.md lists them in words.

They were written down before the policy was tuned. Traces are read from a folder of public data, which is not part of
the repository; a setting whose file is missing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fairlead.model.cluster import Cluster
from fairlead.policies import find_policy
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Settings
from fairlead.sim.truth import World
from fairlead.studies.compare.workloads import at_load
from fairlead.studies.papers.fft import testbed as fft
from fairlead.studies.papers.hops import experiment as hops
from fairlead.studies.papers.hops import jobs as hops_jobs
from fairlead.studies.papers.oef import experiment as oef
from fairlead.studies.runs.simulate import Setup, without_impossible
from fairlead.traces.clusters import read_cluster
from fairlead.traces.formats import Trace, read_trace
from fairlead.traces.generate import generate
from fairlead.traces.profiles import load_default_profile, read_profile

MIXED = "a100:8,v100:16,t4:16"
GAVEL = "v100:{0},p100:{0},k80:{0}"
WIDTHS = {1: 0.6, 2: 0.2, 4: 0.15, 8: 0.05}
SHOCKWAVE = {
    220: "220_0.2_5_100_25_4_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace",
    460: "460_0.2_5_100_10_1_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace",
    900: "900_0.2_5_100_5_15_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace",
}
Build = Callable[[Path, int], Setup]


@dataclass(frozen=True, slots=True)
class ContestSetting:
    """One setting. `seeds` are those of its runs; tuning never saw the seeds or the settings that are held out."""

    name: str
    tuning: bool
    seeds: tuple[int, ...]
    build: Build  # (folder of public data, seed) -> set-up, whose policy is ignored
    needs: str = ""  # file below the folder


def _setup(
    cluster: Cluster,
    trace: Trace,
    profile: Profile,
    *,
    round_s: float = 600.0,
    restart_s: float | None,
    world: World,
    sensing: Sensing = Sensing.TABLE,
) -> Setup:
    setup = Setup(
        cluster, trace, profile, find_policy("fifo"), Settings(round_s), world, restart_s=restart_s, sensing=sensing
    )
    left, _ = without_impossible(setup, skip=True)
    return replace(setup, trace=left)


def _generated(
    data: Path,
    seed: int,
    *,
    load: float,
    tenants: int,
    restart_s: float,
    jobs: int = 60,
    world: World | None = None,
    sensing: Sensing = Sensing.TABLE,
) -> Setup:
    cluster, profile = read_cluster(MIXED), load_default_profile()
    trace = generate(
        cluster, profile, jobs=jobs, load=load, seed=seed, durations="gavel", widths=WIDTHS, tenants=tenants
    )
    faults = replace(world or World(), seed=seed)
    return _setup(cluster, trace, profile, round_s=1800.0, restart_s=restart_s, world=faults, sensing=sensing)


def _fft(data: Path, seed: int, *, jobs: int) -> Setup:
    cluster = fft.paper_cluster()
    trace, profile = fft.workload(cluster, fft.WIDTHS, jobs, seed)
    tenants = tuple(replace(job, tenant=f"tenant-{i % 5}") for i, job in enumerate(trace.jobs))
    trace = replace(trace, jobs=tenants)
    return _setup(cluster, trace, profile, round_s=fft.ROUND_S, restart_s=None, world=World(seed=seed))


def _hops(data: Path, seed: int) -> Setup:
    trace = hops_jobs.workload(seed, 25, 10.0, hops_jobs.HopsJobs("wide", 1.75))
    return _setup(
        hops_jobs.small_cluster(),
        trace,
        hops_jobs.profile(),
        round_s=hops.ROUND_S,
        restart_s=hops.RESTART_S,
        world=World(seed=seed, server_factor=hops.SERVER_FACTOR),
        sensing=Sensing.SERVERS,
    )


def _oef(data: Path, seed: int, *, jobs: int) -> Setup:
    trace, profile = oef.workload(seed, jobs, oef.SETTINGS["narrow"])
    return _setup(oef.bed(), trace, profile, round_s=oef.ROUND_S, restart_s=oef.RESTART_S, world=World(seed=seed))


def _gavel(
    data: Path, seed: int, *, path: str, gpus: int, tenants: int, restart_s: float, jobs: int | None = None
) -> Setup:
    profile = read_profile(data / "gavel" / "simulation_throughputs.json")
    trace = read_trace(data / path, profile=profile, seed=seed, tenants=tenants)
    trace = replace(trace, jobs=tuple(replace(job, weight=1.0) for job in trace.jobs[:jobs]))
    return _setup(read_cluster(GAVEL.format(gpus)), trace, profile, restart_s=restart_s, world=World(seed=seed))


def _pollux(data: Path, seed: int) -> Setup:
    """Jobs that run on half, one and two times their width."""
    cluster, profile = read_cluster("a100:8,v100:12,t4:20"), load_default_profile()
    trace = read_trace(data / "pollux" / "workloads" / f"workload-{seed % 8 + 1}.csv", profile=profile, tenants=5)
    jobs = tuple(
        replace(job, widths=tuple(sorted({max(job.gpus // 2, 1), job.gpus, 2 * job.gpus}))) for job in trace.jobs[:80]
    )
    trace = at_load(replace(trace, jobs=jobs), profile, cluster, 1.0)
    return _setup(cluster, trace, profile, round_s=120.0, restart_s=30.0, world=World(seed=seed))


def _philly(data: Path, seed: int) -> Setup:
    """100 consecutive jobs of the derived Philly trace, of at most 8 GPUs; the seed chooses where they begin."""
    cluster, profile = read_cluster(MIXED), load_default_profile()
    trace = read_trace(data / "philly-derived" / "philly.csv", profile=profile, seed=seed, tenants=8)
    jobs = [job for job in trace.jobs if job.gpus <= 8][2000 + 5000 * (seed % 10) :][:100]
    first_s = jobs[0].arrival_s
    trace = replace(trace, jobs=tuple(replace(job, arrival_s=job.arrival_s - first_s) for job in jobs))
    trace = at_load(trace, profile, cluster, 1.2)
    return _setup(cluster, trace, profile, round_s=1200.0, restart_s=30.0, world=World(seed=seed))


HIDDEN = World(server_factor=(0.75, 1.05), report_s=1200.0)
FAILING = World(mtbf_s=4 * 86400.0)
TUNING_SEEDS, SEEDS = (0, 1), (100, 101, 102)
SETTINGS: tuple[ContestSetting, ...] = (
    ContestSetting("contended, 5 tenants", True, TUNING_SEEDS, partial(_generated, load=1.5, tenants=5, restart_s=0.0)),
    ContestSetting("light, 20 tenants", True, TUNING_SEEDS, partial(_generated, load=0.7, tenants=20, restart_s=30.0)),
    ContestSetting("FFT's bed", True, TUNING_SEEDS, partial(_fft, jobs=120)),
    ContestSetting("contended, 20 tenants", False, SEEDS, partial(_generated, load=1.5, tenants=20, restart_s=60.0)),
    ContestSetting("light, 5 tenants", False, SEEDS, partial(_generated, load=0.7, tenants=5, restart_s=0.0)),
    ContestSetting(
        "hidden servers",
        False,
        SEEDS,
        partial(_generated, load=1.0, tenants=5, restart_s=30.0, world=HIDDEN, sensing=Sensing.THREE_LAYER),
    ),
    ContestSetting("failures", False, SEEDS, partial(_generated, load=1.0, tenants=5, restart_s=60.0, world=FAILING)),
    ContestSetting("Hops' bed", False, SEEDS, _hops),
    ContestSetting("OEF's bed", False, SEEDS, partial(_oef, jobs=100)),
    ContestSetting(
        "Shockwave 220",
        False,
        SEEDS[:1],
        partial(_gavel, path=f"shockwave/{SHOCKWAVE[220]}", gpus=9, tenants=5, restart_s=30.0, jobs=150),
        f"shockwave/{SHOCKWAVE[220]}",
    ),
    ContestSetting(
        "Shockwave 460",
        False,
        SEEDS[:1],
        partial(_gavel, path=f"shockwave/{SHOCKWAVE[460]}", gpus=12, tenants=10, restart_s=0.0, jobs=150),
        f"shockwave/{SHOCKWAVE[460]}",
    ),
    ContestSetting(
        "Shockwave 900",
        False,
        SEEDS[:1],
        partial(_gavel, path=f"shockwave/{SHOCKWAVE[900]}", gpus=16, tenants=20, restart_s=30.0, jobs=200),
        f"shockwave/{SHOCKWAVE[900]}",
    ),
    ContestSetting(
        "Gavel, several GPUs",
        False,
        SEEDS[:1],
        partial(
            _gavel,
            path="gavel/traces/generated/philly_multi_n300_l2400_s0.trace",
            gpus=12,
            tenants=5,
            restart_s=30.0,
            jobs=60,
        ),
        "gavel/traces/generated/philly_multi_n300_l2400_s0.trace",
    ),
    ContestSetting("Pollux, elastic", False, SEEDS[:1], _pollux, "pollux/workloads/workload-1.csv"),
    ContestSetting("Philly slice", False, SEEDS[:1], _philly, "philly-derived/philly.csv"),
)
