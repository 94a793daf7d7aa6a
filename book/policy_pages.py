"""A page for each registered policy, from the registry, its docstrings, the words of `policy_words`, and a small run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from textwrap import dedent
from typing import Any

from book.policy_words import WORDS
from fairlead.model.allocation import Level
from fairlead.policies import REGISTRY
from fairlead.policies.policy import AnyPolicy, Knows

FOLDER = "docs/policies"
_DECIDES = {
    Level.SHARES: "shares: fractional GPUs over time, which become whole gangs round by round",
    Level.GRANTS: "grants: whole GPUs of one round, by job and type",
    Level.PLACEMENT: "placements: which job runs on which nodes",
    Level.TASKS: "single tasks of training rounds, in the simulator only",
}
_KNOWS = {Knows.LENGTHS: "the lengths of jobs", Knows.ARRIVALS: "jobs that have not arrived yet"}
DEPARTS = "Departs:"


def policy_page(name: str) -> str:
    """The page as Markdown."""
    policy, words = REGISTRY[name], WORDS[name]
    texts = [_text(one) for one in _documented(policy)]
    promises = ", ".join(f"**{promise}**" for promise in sorted(policy.promises))
    knows = " and ".join(_KNOWS[one] for one in sorted(policy.knows))
    departs = [part for text in texts for part in text.split("\n\n") if part.startswith(DEPARTS)]
    return "\n".join(
        [
            f"# {name}",
            "",
            f"{policy.summary} From: {policy.paper}.",
            "",
            f"It decides {_DECIDES[Level(policy.level)]}. Beyond the present it knows {knows or 'nothing'}.",
            "",
            f"![Six jobs of two tenants under {name}](../images/policy-{name}.svg)",
            "",
            "The picture is a simulation of six jobs on two fast and two slow GPUs. Jobs of `vision` run seven times as fast on",
            "a v100 as on a k80, those of `speech` twice as fast. The same jobs are on the pages of all policies.",
            "",
            "## What it promises",
            "",
            f"{promises} ([what that means](../promises.md))." if promises else "Nothing that an audit could check.",
            "",
            "## When to use it",
            "",
            words.when,
            "",
            "## Its limits",
            "",
            words.limits,
            "",
            "## What it computes",
            "",
            *(line for text in texts for line in ("```text", _without_departures(text), "```", "")),
            "## Parameters",
            "",
            *_parameters(policy),
            "",
            "## How it differs from its paper",
            "",
            *(_departures(policy, departs)),
            "",
            "How its numbers compare with those of papers is in [reproduction](../reproduction.md), and with other policies in",
            "[the score card](../bench.md).",
            "",
        ]
    )


def _documented(policy: AnyPolicy) -> list[Any]:
    """What has the mathematics: the functions that the words name, or the one that decides; then its module."""
    named = [
        getattr(import_module(place), name)
        for place, _, name in (one.partition(":") for one in WORDS[policy.name].formulas)
    ]
    functions: list[Callable[..., object]] = named or [_inner(getattr(policy, "allocate", None) or policy.plan)]  # type: ignore[union-attr]
    module = inspect.getmodule(functions[0])
    return [module, *functions]


def _inner(function: Any) -> Callable[..., object]:
    while hasattr(function, "func"):
        function = function.func
    return function  # type: ignore[no-any-return]


def _text(thing: Any) -> str:
    return dedent(inspect.getdoc(thing) or "").strip()


def _without_departures(text: str) -> str:
    return "\n\n".join(part for part in text.split("\n\n") if not part.startswith(DEPARTS))


def _parameters(policy: AnyPolicy) -> list[str]:
    if not policy.parameters:
        return ["It has none."]
    rows = [f"| `{name}` | `{value}` | {policy.ranges.get(name, 'any')} |" for name, value in policy.parameters.items()]
    use = f"`--param NAME=VALUE`, or `{policy.name}:NAME=VALUE` where several policies are compared."
    return [f"Set one with {use}", "", "| parameter | default | values |", "| --- | --- | --- |", *rows]


def _departures(policy: AnyPolicy, departs: list[str]) -> list[str]:
    sentences = [" ".join(part.removeprefix(DEPARTS).split()) for part in departs]
    if sentences:
        return [line for one in sentences for line in (_plain(one[0].upper() + one[1:]), "")][:-1]
    if policy.paper.startswith(("ours", "plain order")):
        return ["It is from no paper."]
    return ["Its code names no departure."]


def _plain(text: str) -> str:
    """Text in which only backquotes are marks of Markdown."""
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
