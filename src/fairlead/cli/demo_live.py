from __future__ import annotations

from fairlead.cli.output import Format, Output, print_json, print_table, progress
from fairlead.model.units import format_duration, format_number


def demo_live(output: Output = Format.table) -> None:
    """Train a dozen small jobs of three tenants on an emulated mixed cluster, and audit their shares."""
    from fairlead.service.process import showcase

    with progress("live jobs", len(showcase.TENANTS) * showcase.JOBS_EACH) as report:
        outcome = showcase.showcase(report)
    if output is Format.json:
        print_json(outcome)
        return
    audits = outcome["audit"]["tenants"]
    rows = [
        [
            tenant["name"],
            format_number(tenant["weight"]),
            f"{tenant['finished']} of {showcase.JOBS_EACH}",
            str(tenant["resumed"]),
            format_duration(tenant["mean_jct_s"]),
            format_number(tenant["gpu_s"]),
            format_number(audits[tenant["name"]]["sharing_incentive"]),
        ]
        for tenant in outcome["tenants"]
    ]
    columns = ["tenant", "weight", "finished", "resumed", "mean JCT", "GPU-seconds", "sharing incentive"]
    cluster, policy = outcome["cluster"], outcome["policy"]
    title = f"Live: {len(outcome['jobs'])} real training processes on {cluster} (emulated GPUs), {policy}"
    print_table(title, columns, rows)
    resumed = sum(tenant["resumed"] for tenant in outcome["tenants"])
    lowest = min(audits[tenant["name"]]["sharing_incentive"] for tenant in outcome["tenants"])
    short = "" if lowest >= 1 else f" A run this short has few rounds to even out; the lowest here is {lowest:.2f}."
    print(
        f"{format_duration(outcome['wall_s'])}, pre-empted and resumed from their checkpoints {resumed} times. "
        f"Sharing incentive: throughput / throughput of a private slice; "
        f"{policy} promises at least 1 over many rounds.{short}"
    )
