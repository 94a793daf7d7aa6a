"""The audit of a run that is long enough for promises about averages, on a real Slurm that a service steers; `make steer-audit`.

    python tests/live/steer_audit.py                    # oef-coop: about twenty minutes
    python tests/live/steer_audit.py --keep FOLDER      # keep the journal and the jobs' own records there

Fifty-four jobs of one GPU, of three accounts that each train a model of their own, share 16 GPUs of two types for about 80
rounds. They sleep at the profile's pace and restore for some seconds after a restart, as in `steer_truth`. The run fails if
the audit finds a broken promise. It also prints the audits of simulations with the latencies of this run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from steer_truth import (  # noqa: E402
    CLUSTER,
    OWNERS,
    RATES,
    SIMULATIONS,
    Measured,
    Workload,
    run_on_slurm,
    setup_for,
    steered_site,
)

from fairlead.model.jobs import JobSpec  # noqa: E402
from fairlead.studies.fairness.journal_audit import AuditingJournal, Auditor, RunAudit, audit_journal  # noqa: E402
from fairlead.studies.fairness.promise_verdicts import Standing  # noqa: E402
from fairlead.studies.runs.simulate import simulate  # noqa: E402
from fairlead.traces.load import seconds_per_step  # noqa: E402
from slurm_cluster import missing  # noqa: E402

POLICY = "oef-coop"
MODELS = {"vision": "resnet18-cifar10", "speech": "deepspeech2", "language": "transformer"}
JOBS, AT_ONCE, OVER_S = (
    54,
    24,
    300.0,
)  # so many come at once, which is more than there are GPUs, the others in five minutes


def draw(seed: int) -> tuple[JobSpec, ...]:
    """Jobs of two to eight minutes on a V100."""
    chance, specs = random.Random(seed), []
    for number in range(JOBS):
        tenant = list(OWNERS)[number % len(OWNERS)]
        step_s = seconds_per_step(RATES, CLUSTER, MODELS[tenant], 1, ("v100",))
        assert step_s is not None, f"{MODELS[tenant]} has no speed on a V100"
        lasts_s = 240.0 * min(max(chance.lognormvariate(0, 0.3), 0.5), 2.0)
        arrival_s = 0.0 if number < AT_ONCE else float(round(chance.uniform(0, OVER_S)))
        specs.append(JobSpec(f"{number:02}", tenant, MODELS[tenant], arrival_s, 1, round(lasts_s / step_s), nodes=1))
    return tuple(sorted(specs, key=lambda spec: (spec.arrival_s, spec.id)))


LONG = Workload(draw(0), round_s=15.0, longest_s=3600.0)


def audit_simulated(real: Measured, seed: int) -> RunAudit:
    setup = setup_for(POLICY, LONG, real, random.Random(seed))
    auditor = Auditor.of(setup.header())
    simulate(setup, watch=AuditingJournal(auditor))
    return auditor.audit()


def run(keep: Path) -> bool:
    """Whether the audit of the run on Slurm found every promise kept."""
    with steered_site() as site:
        real = run_on_slurm(site, POLICY, LONG, keep)
    audit = audit_journal(keep / "journal.jsonl")
    restarts = sum(tenant.restarts for tenant in audit.tenants.values())
    print(
        f"{JOBS} jobs, {real.outcome.makespan_s / LONG.round_s:.0f} rounds of {LONG.round_s:g} s, {restarts} restarts"
    )
    for promise in audit.promises:
        causes = ", ".join(f"{part:.0%} {cause}" for cause, part in promise.causes.items())
        print(f"{promise.promise}: {promise.standing} {promise.value} {causes}".rstrip())
    for name, tenant in audit.tenants.items():
        print(f"{name}: sharing incentive {tenant.sharing_incentive}, envy {tenant.envy}, {tenant.restarts} restarts")
    again = [audit_simulated(real, seed) for seed in range(SIMULATIONS)]
    for label, values in (
        ("sharing incentive", [one.min_sharing_incentive or 0.0 for one in again]),
        ("envy", [one.max_envy or 0.0 for one in again]),
    ):
        print(f"{label} in {len(again)} simulations: {min(values):.3f} to {max(values):.3f}")
    return all(promise.standing is not Standing.BROKEN for promise in audit.promises)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, help="folder for the journal and the jobs' records")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="fl-audit-", dir="/tmp") as folder:
        return 0 if run(options.keep or Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
