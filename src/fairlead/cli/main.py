"""The command line: commands are registered here and import what they need when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from fairlead.cli import (
    check_policy,
    cluster,
    compare,
    demo,
    demo_live,
    doctor,
    fairness,
    jobs,
    operate,
    policies,
    profile,
    rates,
    replay,
    reproduce,
    serve,
    simulate,
    trace,
    version,
)
from fairlead.model.errors import FairleadError

# Our matrices are small. A pool of threads for them would spin through 0.05 s of CPU time whenever numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="fairlead",
    help="Schedule deep-learning training on mixed GPU clusters: fast, and provably fair.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("check-policy")(check_policy.check_policy)
app.command("replay")(replay.replay)
app.command("allocate")(fairness.allocate)
app.command("audit")(fairness.audit)
app.command("policies")(policies.policies)
app.command("demo")(demo.demo)
app.command("demo-live")(demo_live.demo_live)
app.command("version")(version.version)
app.add_typer(trace.app, name="trace")
app.add_typer(rates.app, name="rates")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(cluster.app, name="cluster")

_FOR_JOBS: tuple[Callable[..., None], ...] = (
    jobs.submit,
    jobs.queue,
    jobs.status,
    jobs.cancel,
    jobs.hold,
    jobs.release,
    jobs.logs,
    jobs.wait,
    profile.profile,
)
_FOR_CLUSTERS: tuple[Callable[..., None], ...] = (
    serve.serve,
    operate.share,
    operate.journal,
    operate.top,
    doctor.doctor,
)
for verbs, panel in ((_FOR_JOBS, "Live: jobs"), (_FOR_CLUSTERS, "Live: the cluster")):
    for verb in verbs:
        app.command(verb.__name__, rich_help_panel=panel)(verb)
for name in ("nodes", "tenants", "policy", "token"):
    app.add_typer(getattr(operate, name), name=name, rich_help_panel="Live: the cluster")


def main() -> None:
    """Run a command; an error that the user can fix becomes one message and an exit code."""
    try:
        app()
    except FairleadError as error:
        print(f"fairlead: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, so a message about it would fail too
        sys.exit(1)


if __name__ == "__main__":
    main()
