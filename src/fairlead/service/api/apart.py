"""Answers that take long are computed by a module in a process of its own, which prints them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from fairlead.model.errors import FairleadError
from fairlead.service.api.error_responses import ApiError


async def output_apart(module: str, *arguments: str) -> bytes:
    """The standard output of `python -m MODULE ARGUMENTS`; it is killed if the caller gives up."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        raise RuntimeError(f"{module} ended with code {child.returncode}")
    return output


async def simulated_apart(module: str, task: dict[str, Any], patience_s: float) -> dict[str, Any]:
    """The answer of a module that simulates and ends with `print_answer`; an ApiError if it has a problem instead."""
    try:
        asked = output_apart(module, json.dumps(task))
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(asked, patience_s))
    except TimeoutError:
        raise ApiError(429, "too_busy", "the simulation took too long", "try again with a shorter time") from None
    if "problem" in answer:
        raise ApiError(422, "invalid_request", answer["problem"], "choose something else")
    return answer


def print_answer(make: Callable[[], dict[str, Any]]) -> None:
    """Print what `make` returns as JSON, or the problem that it reports."""
    try:
        answer = make()
    except FairleadError as error:
        answer = {"problem": str(error)}
    print(json.dumps(answer))
