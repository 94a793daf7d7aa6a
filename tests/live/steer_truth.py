"""The same forty jobs in the simulator and on a real Slurm that a service steers, under several policies; `make truth`.

    python tests/live/steer_truth.py                    # oef-coop, fft, hops and fifo at the same time: ten minutes
    python tests/live/steer_truth.py oef-coop fifo      # these policies
    python tests/live/steer_truth.py --keep FOLDER      # keep the journals and the jobs' own records there

Every policy has a Slurm and a service of its own, and all run at the same time: a job sleeps for as long as the profile
says that it would train on the type that it got, and needs no CPU. The run measures what the simulator cannot know: how
long restarts, first starts and news of arrivals and ends take on this Slurm. The simulator is given these latencies and
nothing else; neither side sees the other's completion times. Both must agree within 5 % on the mean JCT and on the makespan,
and on the order of the policies.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from test_slurm_steer_live import Site  # noqa: E402

from fairlead.model.cluster import Cluster, parse_short_form  # noqa: E402
from fairlead.model.jobs import JobSpec  # noqa: E402
from fairlead.policies import find_round_policy  # noqa: E402
from fairlead.rates.estimator import TableEstimator  # noqa: E402
from fairlead.rounds.journal import JournalReader  # noqa: E402
from fairlead.rounds.loop import Settings, When  # noqa: E402
from fairlead.sim.truth import World  # noqa: E402
from fairlead.studies.runs.simulate import Setup, simulate  # noqa: E402
from fairlead.studies.runs.summary import summarise  # noqa: E402
from fairlead.traces.formats import Trace  # noqa: E402
from fairlead.traces.load import seconds_per_step  # noqa: E402
from fairlead.traces.profiles import load_default_profile  # noqa: E402
from slurm_cluster import STEERED, SlurmCluster, TestNode, missing  # noqa: E402
from waiting import wait_for  # noqa: E402

POLICIES = ("oef-coop", "fft", "hops", "fifo")
TYPES = ("v100", "p100")
NODES = [TestNode(f"{type_}-{number}", type_, 4) for type_ in TYPES for number in (1, 2)]
CLUSTER = parse_short_form(",".join(f"{type_}:8x4" for type_ in TYPES))
OWNERS = {"vision": "games", "speech": "news", "language": "backup"}  # account: user
MODELS = ("deepspeech2", "transformer", "resnet18-cifar10")  # 1.3 to 2.1 times as fast on a V100
RESTORE_S = 5.0  # for which a job that continues restores its pretended checkpoint
LONGEST_START_S = 60.0  # a job that works later was started by another decision
DECLARED_S = 8.0  # the restart cost that the service assumes: restoring, and some seconds for Slurm
TOLERANCE, SIMULATIONS = 0.05, 16
PROFILE = load_default_profile()
RATES = TableEstimator(PROFILE, CLUSTER)

# Works through its fraction that is left at the pace of its node's type; the arguments are that pace, as TYPE=SECONDS for
# the whole job, and the time to restore. It leaves with 85 when it is asked to stop, and writes down what it did and when.
SLEEPER = r"""#!/bin/bash
file=$HOME/$SLURM_JOB_ID restore=$1; shift
type=${SLURMD_NODENAME%%-*}
for pace in "$@"; do [ "${pace%%=*}" = "$type" ] && whole=${pace#*=}; done
note() { echo "$1 $EPOCHREALTIME $SLURMD_NODENAME" >> "$file.notes"; }
left=$(cat "$file" 2>/dev/null || echo 1)
works=
leave() {
    [ "$works" ] && awk -v l="$left" -v w="$whole" -v a="$works" -v b="$EPOCHREALTIME" \
        'BEGIN { l -= (b - a) / w; printf "%.9f\n", (l > 0 ? l : 0) }' > "$file"
    note stopped
    exit 85
}
trap leave USR1 TERM
note began
[ -e "$file" ] && { sleep "$restore" & wait $!; } || echo 1 > "$file"
note works
works=$EPOCHREALTIME
sleep "$(awk -v l="$left" -v w="$whole" 'BEGIN { printf "%.3f", l * w }')" & wait $!
note ended
"""


@dataclass(frozen=True)
class Workload:
    jobs: tuple[JobSpec, ...]
    round_s: float
    longest_s: float = 1200.0  # a run that takes longer has failed


@dataclass(frozen=True)
class Outcome:
    """Mean completion time and makespan of a run, up to the time when the service knew the ends; restarts of all jobs."""

    jct_s: float
    makespan_s: float
    restarts: int


@dataclass(frozen=True)
class Measured:
    """What a run on Slurm did, and its latencies by our journal and the jobs' own clocks."""

    outcome: Outcome
    cluster: Cluster
    restart_s: tuple[float, ...]  # until a job that ran before works again, since the decision or since others left
    start_s: tuple[float, ...]  # until a new job works
    notice_s: tuple[float, ...]  # from the submission or the end of a job until the service knows it


def draw(
    seed: int, jobs: int, shortest_s: float, mean_s: float, longest_s: float, over_s: float
) -> tuple[JobSpec, ...]:
    """Jobs of three accounts; a third comes at once, the others within `over_s`. Lengths are those on a V100."""
    chance, specs = random.Random(seed), []
    for number in range(jobs):
        model, gpus = chance.choice(MODELS), chance.choice((1, 1, 1, 2))
        lasts_s = min(max(chance.lognormvariate(0, 0.4) * mean_s, shortest_s), longest_s)
        step_s = seconds_per_step(RATES, CLUSTER, model, gpus, ("v100",))
        assert step_s is not None, f"{model} has no speed on a V100"
        arrival_s = 0.0 if 3 * number < jobs else float(round(chance.uniform(0, over_s)))
        tenant = list(OWNERS)[number % len(OWNERS)]
        specs.append(JobSpec(f"{number:02}", tenant, model, arrival_s, gpus, round(lasts_s / step_s), nodes=1))
    return tuple(sorted(specs, key=lambda spec: (spec.arrival_s, spec.id)))


TRUTH = Workload(draw(0, 40, 40.0, 80.0, 120.0, 60.0), round_s=30.0)


# ---- on Slurm ------------------------------------------------------------------------------------------------------


@contextmanager
def steered_site() -> Iterator[Site]:
    cluster = SlurmCluster(NODES, steering=True)
    home = Path(tempfile.mkdtemp(prefix="fl-truth-", dir="/tmp"))
    site = Site(cluster, home)
    try:
        yield site
    finally:
        while site.daemons:
            site.stop()
        cluster.stop()
        shutil.rmtree(home)


def run_on_slurm(site: Site, policy: str, workload: Workload, keep: Path | None = None) -> Measured:
    script = site.slurm.root / "sleeper.sh"
    script.write_text(SLEEPER)
    script.chmod(0o755)
    more = ("--policy", policy, "--round", f"{workload.round_s:g}s", "--restart-cost", f"{DECLARED_S:g}s")
    site.serve(*more, "--estimates", "off")
    zero_s = math.ceil(time.time() / workload.round_s) * workload.round_s  # rounds begin at multiples of their length
    submitted, owner, specs = dict[str, float](), dict[str, str](), dict[str, JobSpec]()
    for spec in workload.jobs:
        time.sleep(max(zero_s + spec.arrival_s - time.time(), 0.0))
        user = OWNERS[spec.tenant]
        at_s = time.time()
        id_ = _submit(site.slurm, user, spec, script)
        submitted[id_], owner[id_], specs[id_] = at_s, user, spec
    notes = _notes_at_the_end(site, owner, workload.longest_s)
    done = {id_: done_part(specs[id_], lines) for id_, lines in notes.items()}
    assert all(abs(part - 1) < 0.1 for part in done.values()), f"jobs did more or less than their work: {done}"
    journal = site.home / "journal.jsonl"
    wait_for(lambda: all(job["phase"] == "finished" for job in site.jobs().values()), "our log to know all ends")
    code, text = site.run("journal", "--out", str(journal))
    assert code == 0, text
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(journal, keep)
        for user in set(owner.values()):
            shutil.copytree(site.slurm.home(user), keep / user, dirs_exist_ok=True)
    slurm_ids = {job["id"]: slurm_id for slurm_id, job in site.jobs().items()}
    site.stop()
    measured = measure(journal, notes, submitted, slurm_ids)
    if keep is not None:
        (keep / "measured.json").write_text(json.dumps({**asdict(replace(measured, cluster=None)), "jobs": slurm_ids}))  # type: ignore[arg-type]
    return measured


def _submit(slurm: SlurmCluster, user: str, spec: JobSpec, script: Path) -> str:
    paces = [f"{type_}={lasts_s(spec, type_):.3f}" for type_ in TYPES]
    words = ["sbatch", "--parsable", f"--partition={STEERED}", f"--account={spec.tenant}", f"--gres=gpu:{spec.gpus}"]
    words += [
        "--output=/dev/null",
        f"--job-name={spec.id}",
        f"--comment=fairlead: model={spec.model} steps={spec.steps:g}",
    ]
    return slurm.run_as(user, *words, str(script), f"{RESTORE_S:g}", *paces).strip()


def lasts_s(spec: JobSpec, type_: str) -> float:
    step_s = seconds_per_step(RATES, CLUSTER, spec.model, spec.gpus, (type_,))
    assert spec.steps is not None
    assert step_s is not None, f"{spec.model} has no speed on {type_}"
    return spec.steps * step_s


Note = tuple[str, float, str]  # what a job did, when, and on which node


def _notes_at_the_end(site: Site, owner: Mapping[str, str], longest_s: float) -> dict[str, list[Note]]:
    """What each job wrote down, once all have ended."""
    give_up_s = time.monotonic() + longest_s
    while True:
        notes = {id_: read_notes(site.slurm.home(user) / f"{id_}.notes") for id_, user in owner.items()}
        if all(lines and lines[-1][0] == "ended" for lines in notes.values()):
            return notes
        assert time.monotonic() < give_up_s, {id_: lines[-1:] for id_, lines in notes.items()}
        time.sleep(2.0)


def read_notes(path: Path) -> list[Note]:
    if not path.exists():
        return []
    lines = (line.split() for line in path.read_text().splitlines())
    return [(what, float(time_s), node) for what, time_s, node in lines]


def done_part(spec: JobSpec, notes: Sequence[Note]) -> float:
    """The part of its work that a job did, by its own notes."""
    runs = itertools.pairwise(notes)
    return sum(
        (after[1] - here[1]) / lasts_s(spec, here[2].partition("-")[0]) for here, after in runs if here[0] == "works"
    )


def measure(
    journal: Path, notes: Mapping[str, list[Note]], submitted: Mapping[str, float], slurm_ids: Mapping[str, str]
) -> Measured:
    """The times of the log are seconds since 1970, like those of the jobs."""
    records = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    arrived = {slurm_ids[one["job"]["id"]]: one["time_s"] for one in records if one["event"] == "arrived"}
    known = {slurm_ids[job]: one["time_s"] for one in records if one["event"] == "finished" for job in one["jobs"]}
    ends = {id_: lines[-1][1] for id_, lines in notes.items()}
    restart_s, start_s = _costs([one for one in records if one["event"] == "decision"], notes, slurm_ids)
    outcome = Outcome(
        fmean(known[id_] - submitted[id_] for id_ in ends),
        max(known.values()) - min(submitted.values()),
        sum(sum(what == "began" for what, _, _ in lines) - 1 for lines in notes.values()),
    )
    notice_s = (*(known[id_] - ends[id_] for id_ in ends), *(arrived[id_] - submitted[id_] for id_ in ends))
    return Measured(outcome, JournalReader(journal).header().cluster, tuple(restart_s), tuple(start_s), notice_s)


def _costs(
    decisions: Sequence[Mapping[str, Any]], notes: Mapping[str, list[Note]], slurm_ids: Mapping[str, str]
) -> tuple[list[float], list[float]]:
    """What restarts and first starts cost: from the decision until the job worked.

    The jobs whose GPUs it gets, and the job itself if it moves, worked until they were stopped, so that it counts from
    there.
    """
    restart_s, start_s = list[float](), list[float]()
    for decision in decisions:
        decided_s = decision["time_s"]
        for job, nodes in decision["start"].items():
            lines = notes[slurm_ids[job]]
            begins = (time_s for what, time_s, _ in lines if what == "works" and time_s > decided_s)
            works_s = next((time_s for time_s in begins if time_s < decided_s + LONGEST_START_S), None)
            if works_s is None:
                continue  # it was stopped again before it worked
            stops = [
                time_s
                for stopped in decision["stop"]
                for what, time_s, node in notes[slurm_ids[stopped]]
                if what == "stopped" and decided_s < time_s < works_s and (stopped == job or node in nodes)
            ]
            ran = any(what == "works" and time_s < decided_s for what, time_s, _ in lines)
            (restart_s if ran else start_s).append(works_s - max(stops, default=decided_s))
    return restart_s, start_s


# ---- in the simulator ----------------------------------------------------------------------------------------------


def run_simulated(policy: str, workload: Workload, real: Measured) -> tuple[Outcome, list[Outcome]]:
    """The mean of many simulations, and all of them.

    Which job ends last often depends on a second more or less, on Slurm and here. So each simulation draws from the
    latencies that the run on Slurm had: one for the news of each arrival, and as many restarts as there were for the mean.
    """
    outcomes = [_simulate_once(policy, workload, real, random.Random(seed)) for seed in range(SIMULATIONS)]
    jct_s, makespan_s = fmean(one.jct_s for one in outcomes), fmean(one.makespan_s for one in outcomes)
    return Outcome(jct_s, makespan_s, round(fmean(one.restarts for one in outcomes))), outcomes


def _simulate_once(policy: str, workload: Workload, real: Measured, chance: random.Random) -> Outcome:
    result = simulate(setup_for(policy, workload, real, chance))
    summary = summarise(result.state, result.finished_jobs()).to_json()
    restarts = round(summary["restarts_per_job"] * len(workload.jobs))
    return Outcome(summary["jct_s"]["mean"], summary["makespan_s"], restarts)


def setup_for(policy: str, workload: Workload, real: Measured, chance: random.Random) -> Setup:
    """The run for the simulator, with latencies that are drawn from the measured ones."""
    news_s = fmean(real.notice_s)
    jobs = [
        replace(spec, arrival_s=max(spec.arrival_s + chance.choice(real.notice_s) - news_s, 0.0))
        for spec in workload.jobs
    ]
    return Setup(
        real.cluster,
        Trace(tuple(sorted(jobs, key=lambda spec: (spec.arrival_s, spec.id))), "truth", "generated"),
        PROFILE,
        find_round_policy(policy),
        Settings(workload.round_s, When.EVENTS),
        World(start_s=fmean(real.start_s), notice_s=news_s),
        restart_s=fmean(chance.choices(real.restart_s, k=len(real.restart_s))),
    )


# ---- both ----------------------------------------------------------------------------------------------------------


def compare(policies: Sequence[str], keep: Path | None) -> bool:
    with ExitStack() as stack:
        sites = [stack.enter_context(steered_site()) for _ in policies]  # one after another: they look for free ports
        with ThreadPoolExecutor(len(policies)) as pool:
            tasks = [
                pool.submit(run_on_slurm, site, policy, TRUTH, keep and keep / policy)
                for site, policy in zip(sites, policies, strict=True)
            ]
            real = dict(zip(policies, (task.result() for task in tasks), strict=True))
    simulated = {policy: run_simulated(policy, TRUTH, run) for policy, run in real.items()}
    return report(real, simulated)


def report(
    real: Mapping[str, Measured], simulated: Mapping[str, tuple[Outcome, list[Outcome]]], engine: str = "Slurm"
) -> bool:
    """Print the table; whether both sides agree."""
    print(f"{'':12}{'mean JCT, s':^38}{'makespan, s':^38}{'restarts':^16}")
    print(f"{'policy':<12}" + f"{'simulated':>9}{'(range)':>13}{engine:>8}{'':8}" * 2 + f"{'simulated':>9}{engine:>7}")
    agree = True
    for policy, run in real.items():
        mean, all_ = simulated[policy]
        cells = [
            _compared(mean.jct_s, [one.jct_s for one in all_], run.outcome.jct_s),
            _compared(mean.makespan_s, [one.makespan_s for one in all_], run.outcome.makespan_s),
        ]
        agree &= all(abs(off) <= TOLERANCE for _, off in cells)
        print(f"{policy:<12}{cells[0][0]}{cells[1][0]}{mean.restarts:9}{run.outcome.restarts:7}")
    ours = sorted(real, key=lambda policy: simulated[policy][0].jct_s)
    theirs = sorted(real, key=lambda policy: real[policy].outcome.jct_s)
    print(f"order by mean JCT: simulated {', '.join(ours)}; {engine} {', '.join(theirs)}")
    for policy, run in real.items():
        print(
            f"{policy} on {engine}: a restart took {fmean(run.restart_s):.1f} s ({len(run.restart_s)}), "
            f"a first start {fmean(run.start_s):.1f} s, news {fmean(run.notice_s):.1f} s"
        )
    return agree and ours == theirs


def _compared(mean_s: float, all_s: Sequence[float], real_s: float) -> tuple[str, float]:
    """Columns of the table, and how far Slurm is from the simulations."""
    off = real_s / mean_s - 1
    return f"{mean_s:9.1f}{f'({min(all_s):.0f}-{max(all_s):.0f})':>13}{real_s:8.1f}{off:+8.1%}", off


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("policies", nargs="*", default=POLICIES, help="policies of rounds")
    parser.add_argument("--keep", type=Path, help="folder for the journals and the jobs' records")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    return 0 if compare(options.policies, options.keep) else 1


if __name__ == "__main__":
    sys.exit(main())
