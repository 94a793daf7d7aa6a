"""Every command with its module and its summary, so that the overview needs none of the modules."""

from __future__ import annotations

from typing import NamedTuple

INTRODUCTION = "Schedule deep-learning training on mixed GPU clusters: fast, and provably fair."
COLUMNS = 80


class CommandEntry(NamedTuple):
    """A command: where it is, and the first sentence or paragraph of its help."""

    name: str
    where: str  # module of this package, and its name there if that is another
    summary: str


_TABLE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Simulate and compare": (
        ("simulate", "simulate", "Simulate one policy on a workload and print a summary."),
        (
            "compare",
            "compare",
            "Run every policy on the same workloads under the same rules, and compare them seed by seed.",
        ),
        (
            "study",
            "study",
            "Run the comparisons of a study file: policies on a grid of workloads, clusters and options.",
        ),
        (
            "advise",
            "advise",
            "Recommend a policy for a workload: run all that a service can use, and say why, and what it costs to be wrong.",
        ),
        (
            "bench",
            "bench",
            "Run policies on a fixed set of small workloads and print a score card: completion times, fairness, CPU time.",
        ),
        (
            "what-if",
            "what_if",
            "Simulate what would happen, side by side with what happens anyway. Nothing of the running service changes.",
        ),
        ("plan", "plan", "Find out which GPUs to buy or retire next, within a budget, from simulated futures."),
        (
            "view",
            "view",
            "Write a page for the browser about a finished run: jobs, tenants, promises, and who ran where.",
        ),
        (
            "replay",
            "replay",
            "Repeat every decision of a journal: the same policy must decide the same, another one shows where it differs.",
        ),
        (
            "demo",
            "demo",
            "Compare the four systems, two of them also improved, and five baselines on the built-in mixed cluster and workload.",
        ),
        ("reproduce", "reproduce:app", "Run a paper's experiments again and print its numbers next to ours."),
    ),
    "Fairness and policies": (
        (
            "allocate",
            "fairness:allocate",
            "Divide the GPUs of an instance between its tenants, and audit the division.",
        ),
        (
            "audit",
            "fairness:audit",
            "Report whether a division, a run or the live service is fair, which promises were kept, and why not.",
        ),
        ("policies", "policies", "List the policies with their papers, levels and the information that they may use."),
        (
            "check-policy",
            "check_policy",
            "Test a policy against the rules for all policies and its own promises; print the first counter-example.",
        ),
    ),
    "Workloads and clusters": (
        ("trace", "trace:app", "Read, convert and generate workloads."),
        ("rates", "rates:app", "Speeds of models on GPU types, with their sources."),
        ("cluster", "cluster:app", "Read and convert descriptions of clusters."),
    ),
    "Live: jobs": (
        ("submit", "jobs:submit", "Submit a job. Once its id is printed, the job survives any failure of the service."),
        ("queue", "jobs:queue", "List the jobs that wait or run."),
        ("status", "jobs:status", "Show everything about a job, or a summary of the cluster."),
        ("cancel", "jobs:cancel", "Cancel jobs. A running job is asked to stop, and killed if it does not."),
        ("hold", "jobs:hold", "Take jobs out of the queue. A running job writes a checkpoint and stops."),
        ("release", "jobs:release", "Put held jobs back into the queue."),
        ("logs", "jobs:logs", "Print the output of a job, over all its runs."),
        ("wait", "jobs:wait", "Wait until a job has ended, and exit with its exit code."),
        (
            "explain",
            "explain",
            "Say why a job waits, runs where it does, was stopped or ended, and what would help it.",
        ),
        ("profile", "profile", "Run a few steps of a job on each GPU type of this machine, and report its speeds."),
    ),
    "Live: the cluster": (
        (
            "serve",
            "serve",
            "Run the scheduler as a durable service with a REST API until a signal ends it. Jobs keep running after that.",
        ),
        ("backup", "backup", "Copy the state of the service, which may run meanwhile, and check the copy."),
        ("restore", "backup:restore", "Put a backup back as the state of the service, which must not run."),
        (
            "snapshot",
            "snapshot",
            "Write the state of the service, for `what-if --from` and `simulate --from` on any machine.",
        ),
        (
            "share",
            "operate:share",
            "Show what each tenant holds now, what it is entitled to by weight, and whether promises were kept so far.",
        ),
        (
            "journal",
            "operate:journal",
            "Write everything that happened as a journal, for `fairlead replay` and `fairlead audit`.",
        ),
        (
            "archive",
            "archive",
            "List what the service has archived, or show an archived job. Works without the service.",
        ),
        ("top", "operate:top", "Show nodes, shares and jobs live in the terminal. Ctrl-C ends it."),
        (
            "doctor",
            "doctor",
            "Check this machine, the service and the token; exit code 1 if something needs to be fixed.",
        ),
        ("shadow", "shadow", "A Slurm cluster that is only watched (serve --shadow)."),
        ("slurm", "slurm:app", "Prepare a Slurm cluster for Fairlead, check it, and leave it again."),
        ("nodes", "operate:nodes", "Nodes: list, drain, resume, add, remove."),
        ("tenants", "operate:tenants", "Weights, quotas and limits of tenants."),
        ("policy", "operate:policy", "The policy that decides: show it, or switch to another."),
        ("token", "operate:token", "Tokens: who may do what."),
        (
            "demo-live",
            "demo_live",
            "Train a dozen small jobs of three tenants on an emulated mixed cluster, and audit their shares.",
        ),
    ),
    "This program": (
        ("config", "config:app", "The configuration of this user."),
        ("completion", "completion", "Print a script that completes commands and options in a shell."),
        ("version", "version", "Print the version."),
    ),
}
PANELS = {panel: tuple(CommandEntry(*row) for row in rows) for panel, rows in _TABLE.items()}
COMMANDS = {entry.name: entry for entries in PANELS.values() for entry in entries}


def overview() -> str:
    """What `fairlead --help` prints."""
    from textwrap import wrap

    width = max(map(len, COMMANDS)) + 4
    lines = ["Usage: fairlead COMMAND [OPTIONS]", "", *wrap(INTRODUCTION, COLUMNS)]
    for panel, entries in PANELS.items():
        lines += ["", f"{panel}:"]
        for entry in entries:
            first, *rest = wrap(entry.summary, COLUMNS - width)
            lines += [f"  {entry.name}".ljust(width) + first, *(" " * width + line for line in rest)]
    lines += ["", "Options:"]
    lines += ["  -h, --help".ljust(width) + "Show this message; `fairlead COMMAND -h` describes a command."]
    lines += ["  --version".ljust(width) + "Print the version."]
    return "\n".join(lines)
