"""Explanations of jobs, in a process of their own: it folds the log and simulates, and a policy's file may be run in it.

`python -m fairlead.service.api.explaining TASK` prints the answer to a task, both as JSON: null if the state does not
have the job, because the scheduler has not taken it yet or has forgotten it since it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.model.errors import FairleadError, NotFoundError
from fairlead.model.explanation import Explanation, read_explanation
from fairlead.service.api.apart import output_apart
from fairlead.service.live_policies import POLICY_MEMORY_GIB, configured, limit_memory
from fairlead.service.store.directory import read_directory
from fairlead.studies.explaining.explain import NOT_ASKED, SLURM_DECIDES, explain, left_unchecked
from fairlead.studies.journals.folding import settings_of

SIMULATION_S = 5.0  # for all remedies of an answer
PATIENCE_S = 30.0  # for an answer, with the reading of the log
NICE = 10  # decisions go first


@dataclass(frozen=True, slots=True)
class ExplainTask:
    directory: str
    job: str
    tenant: str | None  # of the reader; None sees all
    now_s: float  # by the clock of the log
    files: Sequence[str]  # policies of the operator
    simulate_s: float  # 0: no remedies


async def explain_apart(task: ExplainTask) -> Explanation | None:
    """The answer of a child process; None if the state does not have the job. TimeoutError: it took too long."""
    asked = output_apart("fairlead.service.api.explaining", json.dumps(asdict(task)))
    output = await asyncio.wait_for(asked, PATIENCE_S)
    document = json.loads(output)
    return None if document is None else read_explanation(document)


def answer_task(task: ExplainTask) -> Explanation | None:
    header, state = read_directory(Path(task.directory))
    state.pass_time(max(task.now_s, state.now_s))
    settings = settings_of(header)
    try:
        answer = explain(state, settings, task.job, task.tenant)
    except NotFoundError:
        return None
    if header.more.get("shadow"):
        return left_unchecked(answer, SLURM_DECIDES)
    if not task.simulate_s:
        return left_unchecked(answer, NOT_ASKED)
    try:
        policy = configured(header.policy, header.parameters, task.files)
    except FairleadError as error:
        return left_unchecked(answer, f"the policy cannot be simulated: {error}")
    # Only this process simulates: the service itself never imports the simulator.
    from fairlead.studies.explaining.remedies import explain_with_remedies
    from fairlead.studies.runs.origin import Origin

    origin = Origin(Path(task.directory).name, header, state, policy, settings)
    return explain_with_remedies(origin, task.job, task.tenant, limit_s=task.simulate_s)


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICE)
    limit_memory(POLICY_MEMORY_GIB)
    answer = answer_task(ExplainTask(**json.loads(sys.argv[1])))
    print(json.dumps(None if answer is None else answer.to_json()))
