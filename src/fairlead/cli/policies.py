from __future__ import annotations

from fairlead.cli.output import Format, Output, print_json, print_table


def policies(output: Output = Format.table) -> None:
    """List the policies with their papers, levels and the information that they may use."""
    from fairlead.policies import REGISTRY
    from fairlead.studies.policy_lab.plugins import installed_policies

    known = [*REGISTRY.values(), *installed_policies().values()]
    if output is Format.json:
        print_json(
            [
                {
                    "name": policy.name,
                    "summary": policy.summary,
                    "paper": policy.paper,
                    "level": policy.level,
                    "knows": sorted(policy.knows),
                    "parameters": policy.parameters,
                }
                for policy in known
            ]
        )
        return
    rows = [[p.name, p.summary, p.paper, p.level, ", ".join(sorted(p.knows)) or "-"] for p in known]
    print_table("Policies", ["name", "what it does", "paper", "level", "knows"], rows, left=5)
