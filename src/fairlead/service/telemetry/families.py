"""All metrics that the service exposes. docs/operations.md has the same table, which a test compares."""

from __future__ import annotations

from fairlead.model.histogram import FAST_S
from fairlead.service.telemetry.exposition import MetricFamily

# From seconds to weeks: jobs of minutes and of days are in one cluster.
LONG_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
RATIOS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
LATENCY_RATIOS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
ERRORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


def _gauge(name: str, help_: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"fairlead_{name}", "gauge", help_, labels)


def _counter(name: str, help_: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"fairlead_{name}_total", "counter", help_, labels)


def _histogram(name: str, help_: str, bounds: tuple[float, ...], *labels: str) -> MetricFamily:
    return MetricFamily(f"fairlead_{name}", "histogram", help_, labels, bounds)


# ---- the service and its decisions ------------------------------------------------------------------------------

BUILD_INFO = _gauge("build_info", "1, with the version of Fairlead and of Python.", "version", "python")
POLICY_INFO = _gauge("policy_info", "1, with the policy that decides.", "policy")
POLICY_FAILED = _gauge("policy_failed", "1 if another policy than the one that was set decides.")
SCHEDULER_READY = _gauge("scheduler_ready", "1 if the scheduler process is ready.")
SCHEDULER_RESTARTS = _counter("scheduler_restarts", "Restarts of the scheduler process since the service started.")
DECISION_AGE = _gauge("decision_age_seconds", "Time since the last decision of the scheduler process.")
DECISION_OVERDUE = _gauge("decision_overdue", "1 if a round should have been decided by now.")
DECISION_SECONDS = _histogram("decision_seconds", "Time from the events to the commit of a decision.", FAST_S)
DECISIONS = _counter("decisions", "Decisions, by cause: a round, an event within one, or a watched Slurm.", "cause")
DECISIONS_CUT_SHORT = _counter("decisions_cut_short", "Decisions with a solve that the clock cut short.")
SOLVER_FALLBACKS = _counter("solver_fallbacks", "Decisions whose solver did not report an optimum or one close to it.")
POLICY_FALLBACKS = _counter("policy_fallbacks", "How often a policy could not decide and another one took over.")
COMMIT_SECONDS = _histogram("commit_seconds", "Duration of a commit, by database.", FAST_S, "database")
LOG_RECORDS = _counter("log_records", "Records of the log, archived ones included.")
METRICS_LAG = _gauge("metrics_lag_records", "Records of the log that the metrics do not contain yet.")

# ---- jobs ---------------------------------------------------------------------------------------------------------

JOBS = _gauge("jobs", "Jobs in each state that are not archived.", "state", "tenant")
OLDEST_WAITING = _gauge("oldest_waiting_job_seconds", "Time since the arrival of the oldest job that waits; 0: none.")
JOBS_SUBMITTED = _counter("jobs_submitted", "Jobs that the scheduler has taken.", "tenant")
JOB_STARTS = _counter("job_starts", "Starts of jobs, restarts included.", "tenant")
JOBS_ENDED = _counter("jobs_ended", "Jobs that ended, by outcome: finished, failed or cancelled.", "tenant", "outcome")
JOB_WAIT = _histogram("job_wait_seconds", "Time from the arrival of a job to its first start.", LONG_S, "tenant")
JOB_COMPLETION = _histogram(
    "job_completion_seconds", "Time from the arrival of a finished job to its end.", LONG_S, "tenant"
)
PREEMPTIONS = _counter("preemptions", "Jobs that a decision stopped without starting them elsewhere.", "tenant")
MOVES = _counter("moves", "Jobs that a decision stopped and started again elsewhere or with other GPUs.", "tenant")
FINISH_TIME_FAIRNESS = _histogram(
    "finish_time_fairness_ratio", "Finish-time fairness of finished jobs with a profiled model.", RATIOS
)
LATENCY_RATIO = _histogram(
    "latency_ratio", "Waiting time over expected run time of finished jobs with a profiled model.", LATENCY_RATIOS
)
RATE_ERROR = _histogram(
    "rate_error_ratio", "Relative error of the expected rate of a start, by the first rate that was reported.", ERRORS
)

# ---- GPUs and tenants -----------------------------------------------------------------------------------------------

GPUS = _gauge("gpus", "GPUs by state: held, free, down, drained, or used by others.", "type", "state")
NODES = _gauge("nodes", "Nodes by state: up, down or drained.", "type", "state")
FRAGMENTED = _gauge(
    "fragmented_gpus", "Free GPUs on nodes with too few of them, on average over the waiting jobs.", "type"
)
TENANT_WEIGHT = _gauge("tenant_weight", "Weight of the tenant.", "tenant")
TENANT_HELD = _gauge("tenant_held_gpus", "GPUs that the tenant holds.", "tenant", "type")
TENANT_ENTITLED = _gauge("tenant_entitled_gpus", "GPUs that the tenant's weight entitles it to now.", "tenant", "type")
TENANT_BORROWED = _gauge("tenant_borrowed_gpus", "GPUs that it holds beyond these.", "tenant", "type")

# ---- the fairness audit ---------------------------------------------------------------------------------------------

AUDIT_TIME = _gauge("audit_timestamp_seconds", "When the last audit was made, in seconds since 1970.")
ENVY = _gauge("envy_ratio", "Largest envy of the tenant over the life of the service; +Inf: it held nothing.", "tenant")
SHARING_INCENTIVE = _gauge(
    "sharing_incentive_ratio", "What the tenant achieved over the worth of its private slice.", "tenant"
)
HELD_GPU_SECONDS = _counter("tenant_held_gpu_seconds", "GPU time that the tenant held.", "tenant", "type")
ENTITLED_GPU_SECONDS = _counter("tenant_entitled_gpu_seconds", "GPU time of its private slice.", "tenant")
BORROWED_GPU_SECONDS = _counter("tenant_borrowed_gpu_seconds", "GPU time that it held beyond its slice.", "tenant")
LENT_GPU_SECONDS = _counter("tenant_lent_gpu_seconds", "GPU time of its slice that it left to others.", "tenant")
RESTART_GPU_SECONDS = _counter("restart_gpu_seconds", "GPU time lost to restarts and to work done again.", "tenant")
AUDIT_FAILURES = _counter("audit_failures", "Audits for the metrics that failed since the service started.")

# ---- the engine -----------------------------------------------------------------------------------------------------

ENGINE_CALL_SECONDS = _histogram("engine_call_seconds", "Duration of a call of the engine.", FAST_S, "call")
ENGINE_CALL_ERRORS = _counter("engine_call_errors", "Calls of the engine that failed or had no effect.", "call")
ENGINE_DRIFT = _counter(
    "engine_drift", "Jobs that the engine lost, or refused to start, although they were decided.", "kind"
)

# ---- notices --------------------------------------------------------------------------------------------------------

NOTICES = _counter(
    "notices", "Notices by channel and outcome: delivered, dropped, or an attempt that failed.", "channel", "outcome"
)
NOTICES_PENDING = _gauge("notices_pending", "Notices that wait to be delivered.", "channel")

FAMILIES: tuple[MetricFamily, ...] = tuple(value for value in globals().values() if isinstance(value, MetricFamily))
