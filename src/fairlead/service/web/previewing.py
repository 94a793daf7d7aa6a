"""What a change would do, before it is made: simulated in a process of its own from the present state of the service.

`python -m fairlead.service.web.previewing TASK` prints the answer to a task, both as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.model.quotas import Quota
from fairlead.rounds.state import State
from fairlead.service.api.apart import print_answer, simulated_apart
from fairlead.service.live_policies import POLICY_MEMORY_GIB, configured, limit_memory
from fairlead.service.store.directory import read_directory
from fairlead.studies.journals.folding import settings_of

if TYPE_CHECKING:
    from fairlead.studies.what_if.changes import SetTerms

PATIENCE_S = 180.0
NICE = 10  # decisions go first
SEEDS = 2  # a preview is quick; `fairlead what-if` takes more
AS_IT_IS, CHANGED = "as it is", "with the change"


@dataclass(frozen=True, slots=True)
class PreviewTask:
    """At least one of policy, node and tenant is set: what decides, what is drained, whose terms change."""

    directory: str
    files: Sequence[str]  # policies of the operator
    horizon_s: float
    policy: str = ""
    node: str = ""
    tenant: str = ""
    weight: float | None = None  # None keeps it
    quotas: Sequence[Mapping[str, Any]] | None = None  # None keeps them


async def preview_apart(task: PreviewTask) -> dict[str, Any]:
    """The figures with and without the change, by a child process."""
    return await simulated_apart("fairlead.service.web.previewing", asdict(task), PATIENCE_S)


def answer_task(task: PreviewTask) -> dict[str, Any]:
    """Rows of figures: label, unit, and the means and ranges of both scenarios."""
    # Only this process simulates: the service itself never imports the simulator.
    from fairlead.studies.runs.origin import Origin
    from fairlead.studies.what_if.changes import Hypothetical, TakeNode, UsePolicy
    from fairlead.studies.what_if.figures import FIGURES
    from fairlead.studies.what_if.scenarios import Scenario, ask_what_if

    header, state = read_directory(Path(task.directory))
    if header.more.get("shadow"):
        return {"problem": "Slurm decides here, and what it will do is not simulated"}
    policy = configured(header.policy, header.parameters, task.files)
    origin = Origin(Path(task.directory).name, header, state, policy, settings_of(header))
    changes: list[Hypothetical] = []
    changes += [UsePolicy(configured(task.policy, {}, task.files))] if task.policy else []
    changes += [TakeNode(task.node)] if task.node else []
    changes += [_terms(task, state)] if task.tenant else []
    scenarios = [Scenario(AS_IT_IS), Scenario(CHANGED, tuple(changes))]
    answer = ask_what_if(origin, scenarios, task.horizon_s, range(SEEDS)).to_json()
    before, after = (scenario["overall"] for scenario in answer["scenarios"])
    rows = [
        {"label": label, "unit": unit, "before": before.get(name), "after": after.get(name)}
        for name, (label, unit) in FIGURES.items()
    ]
    return {"rows": rows, "jobs": answer["active_jobs"]}


def _terms(task: PreviewTask, state: State) -> SetTerms:
    """The new terms of the tenant. Its other quotas end, and a quota of nothing without limits is the same as none."""
    from fairlead.studies.what_if.changes import SetTerms

    if task.quotas is None:
        return SetTerms(task.tenant, task.weight)
    quotas = [Quota(**quota) for quota in task.quotas]
    u = state.tenants.get(task.tenant)
    before = () if u is None else state.quotas_of(u)
    ended = [Quota(one.type, 0) for one in before if one.type not in {quota.type for quota in quotas}]
    return SetTerms(task.tenant, task.weight, (*quotas, *ended))


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICE)
    limit_memory(POLICY_MEMORY_GIB)
    print_answer(lambda: answer_task(PreviewTask(**json.loads(sys.argv[1]))))
