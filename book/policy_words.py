"""What the pages of policies say that the code does not: when to use each, its limits, and which docstrings have its formula."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PolicyWords:
    when: str
    limits: str
    formulas: tuple[str, ...] = ()  # functions with the mathematics, as module:name; none: that of the policy itself


_POLICIES = "fairlead.policies"
_LENGTHS = "It needs to know the lengths of jobs."
_BASELINE = "To repeat comparisons of papers that use it as a baseline."

WORDS: dict[str, PolicyWords] = {
    "fifo": PolicyWords(
        "As a baseline that everybody understands.",
        "A wide job at the head does not hold back narrower ones behind it, so it may wait long. Short jobs wait behind "
        "long ones, and jobs move whenever a faster type comes free.",
    ),
    "fifo-sticky": PolicyWords(
        "As a baseline without pre-emption, and where jobs cannot save their state.",
        "A job that starts on a slow type stays there. Short jobs wait behind long ones.",
    ),
    "srtf": PolicyWords(
        "Where the mean completion time is all that counts, and lengths are known.",
        f"Long jobs can wait without a bound while shorter ones arrive. It knows no tenants. {_LENGTHS}",
    ),
    "las": PolicyWords(
        "Where lengths are not known and most jobs are short.",
        "Long jobs of the last queue share what is left. It counts a slow GPU like a fast one, and knows no tenants.",
    ),
    "equal-share": PolicyWords(
        "As the yardstick of fairness: finish-time fairness is measured against it.",
        "No trade takes place, so jobs that gain much from fast GPUs get as many of them as those that gain little.",
    ),
    "gavel": PolicyWords(
        "Where all jobs count alike and none may fall behind its isolated share.",
        "A tenant with more jobs gets more. It promises no absence of envy between tenants, and is blind to lengths.",
    ),
    "oef-coop": PolicyWords(
        "Where tenants share a cluster, report their speeds honestly (or are measured), and should not envy each other.",
        "Promises are about fractional shares over time: whole gangs and short times leave gaps, which an audit names. "
        "Exaggerated speeds can pay until they are measured. Completion times are not its aim.",
        (f"{_POLICIES}.oef:cooperative",),
    ),
    "oef-noncoop": PolicyWords(
        "Where tenants may exaggerate what fast GPUs are worth to them.",
        "A tenant can envy another one, and one that gains much from fast GPUs may get less than a private slice would "
        "give it. Understating speeds can pay until they are measured.",
        (f"{_POLICIES}.oef:non_cooperative",),
    ),
    "gandiva-fair": PolicyWords(
        "Where every tenant insists on at least its equal share, and may trade on top of it.",
        "Trades between pairs find less than the best division. Envy remains.",
        (f"{_POLICIES}.gandiva_fair:gandiva_fair",),
    ),
    "fft": PolicyWords(
        "Where finish-time fairness of single jobs counts, lengths are known, and rounds are minutes long.",
        f"It knows no tenants. As printed, its costs favour long jobs on fast GPUs; `fft-ranked` does not. {_LENGTHS}",
    ),
    "fft-ranked": PolicyWords(
        "For short completion times where lengths are known, with an eye on jobs that would be late.",
        f"It knows no tenants, and jobs may understate their speeds until those are checked. {_LENGTHS}",
    ),
    "allox": PolicyWords(
        f"{_BASELINE} It never stops a job that has started.",
        "Made for jobs of one GPU; here gangs queue too. Without pre-emption a bad start is not repaired.",
    ),
    "tiresias": PolicyWords(
        f"{_BASELINE} It needs neither lengths nor speeds.",
        "It is blind to GPU types. Promotion after a wait limits starvation, at the price of restarts.",
    ),
    "tiresias-fft": PolicyWords(
        "To repeat the comparison of FFT's paper.",
        "A job keeps the type that it was given at its arrival, so speeds that are measured later come too late.",
    ),
    "themis": PolicyWords(
        "Where leases of a fixed length suit the cluster and finish-time fairness counts.",
        f"GPUs are redistributed only when leases end. {_LENGTHS}",
    ),
    "gavel-sjf": PolicyWords(
        f"{_BASELINE} Short jobs get the larger shares of time.",
        f"Long jobs can starve. {_LENGTHS}",
    ),
    "gavel-waterfill": PolicyWords(
        "Where `gavel` stops too early: after the smallest ratio, the second smallest is raised, and so on.",
        "It costs more to compute than `gavel`. A tenant with more jobs gets more.",
    ),
    "gavel-hierarchical": PolicyWords(
        "Where weights of tenants come first, and jobs share inside each tenant.",
        "It promises no absence of envy. It costs more to compute than `gavel`.",
    ),
    "gavel-ftf": PolicyWords(
        "Where no job may end late relative to its time alone, and lengths are known.",
        f"The job that is served worst decides for all, so mean times suffer. {_LENGTHS}",
    ),
    "gavel-makespan": PolicyWords(
        "For a batch of jobs that should end together as early as possible.",
        f"It means little while jobs keep arriving, and short jobs wait. {_LENGTHS}",
    ),
    "hops": PolicyWords(
        "Where servers of one type differ in speed, and the wait of a job should fit its length.",
        f"It knows no tenants. {_LENGTHS}",
    ),
    "hops-late": PolicyWords(
        "As `hops`, where jobs may also run wider than they ask, and restarts cost something.",
        f"It knows no tenants. {_LENGTHS}",
    ),
    "hare": PolicyWords(
        "As the yardstick of single-task scheduling: it knows all jobs and arrivals in advance.",
        "It runs only in the simulator, and no cluster knows the future.",
    ),
    "hare-online": PolicyWords(
        "To see what single-task scheduling would gain without knowledge of arrivals.",
        "It runs only in the simulator. Changing the job of a GPU costs a restart unless `--switching fast` is assumed.",
    ),
    "hlas": PolicyWords(
        "To see what single-task scheduling would gain without knowledge of lengths.",
        "It runs only in the simulator. The paper is known to us by its abstract; queues and promotion are our reading.",
    ),
    "hlas-rounds": PolicyWords(
        "For live clusters with jobs that are relaxed, whose grants may mix GPU types, and of unknown length.",
        "Jobs that are not relaxed gain nothing over `las` with speeds. It knows no tenants.",
    ),
    "sia": PolicyWords(
        f"{_BASELINE} It chooses widths and types together, for elastic jobs.",
        f"Goodput is the rate here, because batch sizes do not change. It knows no tenants. {_LENGTHS}",
    ),
    "fairlead": PolicyWords(
        "For short completion times among tenants that are owed GPUs, if you have compared it on your own workload: "
        "[what it has earned](../policy-fairlead.md).",
        f"It is not a default, because it has not earned that. {_LENGTHS}",
    ),
    "fairlead-blind": PolicyWords(
        "As `fairlead`, where lengths are not declared: they are learnt from jobs that have ended.",
        "A workload whose jobs resemble none of the past is judged badly at first.",
    ),
}
