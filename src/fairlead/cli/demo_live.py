from __future__ import annotations

from fairlead.cli.output import Format, Output, print_json, print_table, progress
from fairlead.model.units import format_duration, format_number


def demo_live(output: Output = Format.table) -> None:
    """Run a dozen small training jobs of three tenants for real, on an emulated mixed cluster, and audit what they got."""
    from fairlead.service.process import showcase

    with progress("live jobs", len(showcase.TENANTS) * showcase.JOBS_EACH) as tell:
        found = showcase.showcase(tell)
    if output is Format.json:
        print_json(found)
        return
    held = found["audit"]["tenants"]
    rows = [
        [
            tenant["name"],
            format_number(tenant["weight"]),
            f"{tenant['finished']} of {showcase.JOBS_EACH}",
            str(tenant["resumed"]),
            format_duration(tenant["mean_jct_s"]),
            format_number(tenant["gpu_s"]),
            format_number(held[tenant["name"]]["sharing_incentive"]),
        ]
        for tenant in found["tenants"]
    ]
    columns = ["tenant", "weight", "finished", "resumed", "mean JCT", "GPU-seconds", "sharing incentive"]
    title = f"Live: {len(found['jobs'])} real training processes on {found['cluster']} (slots at an emulated pace), {found['policy']}"
    print_table(title, columns, rows)
    resumed = sum(tenant["resumed"] for tenant in found["tenants"])
    least = min(held[tenant["name"]]["sharing_incentive"] for tenant in found["tenants"])
    short = "" if least >= 1 else f" A run as short as this has few rounds to even out: the least here is {least:.2f}."
    print(
        f"{format_duration(found['wall_s'])}, pre-empted and resumed from their checkpoints {resumed} times. "
        f"Sharing incentive: throughput / that of a private slice; {found['policy']} promises at least 1 over many rounds.{short}"
    )
