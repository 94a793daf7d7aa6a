"""No policy uses more than it declares: every registered policy obeys the rules, and cheats are detected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.cli.main import main
from fairlead.model.allocation import Grants, Level
from fairlead.model.view import View
from fairlead.policies import REGISTRY, ROUND_POLICIES
from fairlead.policies.policy import AnyPolicy, Knows, Policy, Promise
from fairlead.studies.policy_lab.plugins import load_policy
from fairlead.studies.policy_lab.policy_checks import CounterExample, check_policy, rules_for

TEMPLATE = str(files("fairlead.studies.policy_lab").joinpath("templates/my_policy.py"))


def failure(policy: AnyPolicy, examples: int = 30) -> CounterExample | None:
    return [*check_policy(policy, range(examples))][-1]


@pytest.mark.parametrize("policy", REGISTRY.values(), ids=list(REGISTRY))
def test_every_policy_keeps_the_rules_and_its_promises(policy: AnyPolicy) -> None:
    failed = failure(policy, 5)

    assert failed is None, f"{failed.rule}: {failed.complaint}\n{failed.world}"


def test_a_policy_that_declares_more_is_checked_by_fewer_rules() -> None:
    blind, informed, seer = (set(rules_for(REGISTRY[name])) for name in ("fifo", "srtf", "hare"))

    assert seer < informed < blind | {"jobs that have not arrived yet change nothing"}
    assert len(blind - informed) == 1


def test_the_template_passes() -> None:
    policy = load_policy(f"{TEMPLATE}:policy")

    assert policy.parameters == {"patience_s": 0.0}
    assert failure(policy, 20) is None


def by_order(order: Callable[[View], Any], **more: Any) -> Policy:
    """First fit in the order that the cheat chooses."""

    def allocate(view: View, memory: Any) -> tuple[Grants, Any]:
        free, rows = view.capacity.copy(), []
        for j in order(view):
            for t in np.flatnonzero(view.rate[j]).tolist():
                if free[t] >= view.width[j]:
                    free[t] -= view.width[j]
                    rows.append((int(j), t, int(view.width[j])))
                    break
        jobs, types, gpus = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return Grants(jobs, types, gpus), None

    return Policy("cheat", "Cheats.", "made up", Level.GRANTS, allocate, **more)


def _setup_of_the_caller() -> Any:
    """What a policy finds that inspects the stack of its callers."""
    frame = sys._getframe()
    while "setup" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_locals["setup"]


def _shortest_first(view: View) -> Any:
    steps = {i: job.steps for i, job in enumerate(_setup_of_the_caller().trace.jobs)}
    return sorted(range(view.jobs), key=lambda j: (steps[int(view.job[j])], j))


def _by_later_arrivals(view: View) -> Any:
    coming = len(_setup_of_the_caller().trace.jobs)
    return np.argsort((view.job * 7 + coming * 3) % 5, kind="stable")


def _by_hidden_speed(view: View) -> Any:
    low, high = _setup_of_the_caller().world.server_factor
    return np.arange(view.jobs)[:: -1 if low < high else 1]


def _by_chance(view: View) -> Any:
    return np.random.default_rng().permutation(view.jobs)


@pytest.mark.parametrize(
    ("order", "knows", "rule"),
    [
        (_shortest_first, frozenset(), "lengths that it does not declare"),
        (_by_later_arrivals, frozenset({Knows.LENGTHS}), "jobs that have not arrived yet"),
        (_by_hidden_speed, frozenset({Knows.LENGTHS}), "hidden speeds of servers"),
        (_by_chance, frozenset(Knows), "the same world gives the same run"),
    ],
)
def test_a_cheat_is_detected(order: Callable[[View], Any], knows: frozenset[Knows], rule: str) -> None:
    failed = failure(by_order(order, knows=knows), 60)

    assert failed is not None
    assert rule in failed.rule


def test_declared_knowledge_is_not_a_cheat() -> None:
    assert failure(by_order(_shortest_first, knows=frozenset({Knows.LENGTHS})), 15) is None


def test_a_counter_example_is_small() -> None:
    def starve(view: View) -> Any:
        return [j for j in range(view.jobs) if view.width[j] < 4]

    failed = failure(by_order(starve))

    assert failed is not None
    assert failed.world.count(" steps, ") == 1  # one job is enough
    assert "never finish" in failed.complaint or "still" in failed.complaint


def test_a_broken_promise_is_detected() -> None:
    waste = replace(ROUND_POLICIES["equal-share"], promises=frozenset({Promise.NO_WASTE}))
    liars = replace(ROUND_POLICIES["oef-coop"], promises=frozenset({Promise.NO_EXAGGERATION}))

    for policy, message in ((waste, "higher with nobody worse off"), (liars, "by claiming")):
        failed = failure(policy, 10)
        assert failed is not None
        assert message in failed.complaint


def test_the_command_prints_what_to_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.py"
    text = Path(TEMPLATE).read_text(encoding="utf-8")
    bad.write_text(text.replace("free[t] -= view.width[j]", "pass"), encoding="utf-8")
    sys.argv = ["fairlead", "check-policy", f"{bad}:policy"]

    with pytest.raises(SystemExit) as stopped:
        main()

    out = capsys.readouterr().out
    assert stopped.value.code == 1
    assert "my-policy breaks a rule" in out
    again = next(line for line in out.splitlines() if line.startswith("to repeat: ")).split()[3:]
    done = subprocess.run([sys.executable, "-m", "fairlead.cli.main", *again], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 +", "SyntaxError"),
        ("x = 1", 'has no "policy"'),
        ("policy = 3", "wanted a RoundPolicy (or a TaskPolicy) of fairlead.policies.policy"),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_a_file_without_a_policy_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    sys.argv = ["fairlead", "check-policy", f"{path}:policy"]

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    free =", "    assert view.total[0] > 0\n    free =", "declare knows=frozenset({Knows.LENGTHS})"),
        ("    free =", "    return None\n    free =", "returned None; allocate must return (answer, memory)"),
        (
            "return Grants(jobs, types, gpus), memory",
            "return Grants(jobs, types, gpus)",
            "returned Grants; allocate must",
        ),
        ("int(view.width[j])", "1", "job j"),
    ],
)
def test_mistakes_are_explained_to_the_author_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = tmp_path / "mine.py"
    text = Path(TEMPLATE).read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    sys.argv = ["fairlead", "check-policy", f"{path}:policy"]

    with pytest.raises(SystemExit) as stopped:
        main()

    out = capsys.readouterr().out
    assert stopped.value.code == 1
    assert message in out.splitlines()[1]
    assert "Settings(" not in out
    assert "tenant weights: all 1" in out
