from __future__ import annotations

from fairlead.cli.options import Seed
from fairlead.cli.output import Format, Output, is_narrow, number, print_json, print_table, progress
from fairlead.model.units import format_duration

NARROW = (0, 1, 4, 5, 6, 9)  # columns that fit a terminal of 80


def demo(seed: Seed = 0, output: Output = Format.table) -> None:
    """Run every policy on the built-in mixed cluster and workload."""
    from fairlead.policies import REGISTRY
    from fairlead.studies import demo as study

    results = []
    with progress("policies", len(REGISTRY)) as tell:
        for result in study.demo(seed):
            results.append(result)
            tell(len(results))
    if output is Format.json:
        print_json(results)
        return
    columns = ["policy", "mean JCT", "p99 JCT", "makespan", "mean wait", "mean FTF", "max FTF", "FTF <= 1"]
    columns += ["utilisation", "moves/job", "decision"]
    rows = [
        [
            r["policy"],
            format_duration(r["jct_s"]["mean"]),
            format_duration(r["jct_s"]["p99"]),
            format_duration(r["makespan_s"]),
            format_duration(r["wait_s"]["mean"]),
            number(r["ftf"]["mean"]),
            number(r["ftf"]["max"]),
            f"{r['ftf']['share_at_most_1']:.0%}",
            f"{r['gpu_utilisation']:.0%}",
            number(r["migrations_per_job"]),
            f"{1e3 * r['decision_s']['mean']:.2f} ms",
        ]
        for r in results
    ]
    if is_narrow():
        columns, rows = [columns[i] for i in NARROW], [[row[i] for i in NARROW] for row in rows]
    print_table(f"{study.JOBS} jobs of {study.TENANTS} tenants on {study.CLUSTER}, load {study.LOAD:g}", columns, rows)
    print("FTF: time in the shared cluster / time alone on an equal share; below 1 is better than a private slice.")
