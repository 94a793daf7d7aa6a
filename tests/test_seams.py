"""The architecture: layers, levels, and a core that names no policy."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from building import PLUG_INS, Scene, job
from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.policies import REGISTRY, ROUND_POLICIES, TASK_POLICIES, find_policy, find_round_policy
from fairlead.policies.policy import AnyPolicy, Knows, Policy, Promise, RoundPolicy

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "fairlead"


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout


@pytest.mark.parametrize("name", REGISTRY)
def test_the_core_knows_no_policy_by_name(name: str) -> None:
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
    variable = re.compile(rf"\b{re.escape(name.replace('-', '_'))}\b")
    if name == "fairlead":  # also the name of the package: only a comparison or a look-up is about the policy
        word = variable = re.compile(
            r"""(==|!=|\bin|find_\w*policy\(|(REGISTRY|POLICIES)\[|policies import)\s*["']?fairlead["']?(?!\.)\b"""
        )

    violations = [
        f"{path.relative_to(ROOT)}:{number}"
        for part in ("rounds", "sim", "placement", "engines")
        for path in sorted((SOURCES / part).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if word.search(line) or variable.search(line)
    ]

    assert violations == []


def test_there_is_a_made_up_policy_for_every_level() -> None:
    """They pass the same tests as the registered ones: see EVERY_POLICY."""
    assert {policy.level for policy in PLUG_INS} == set(Level)


@pytest.mark.parametrize("policy", ROUND_POLICIES.values(), ids=list(ROUND_POLICIES))
def test_a_policy_sees_lengths_only_if_it_says_so(policy: Policy) -> None:
    view = Scene([job("a")]).view(policy=policy)

    knows = Knows.LENGTHS in policy.knows
    assert (view.total is not None) == knows
    assert (view.done is not None) == knows


@pytest.mark.parametrize("policy", REGISTRY.values(), ids=list(REGISTRY))
def test_a_policy_says_what_it_is(policy: AnyPolicy) -> None:
    assert REGISTRY[policy.name] is policy
    assert policy.summary.endswith(".")
    assert policy.paper


def test_lengths_that_nobody_declared_are_not_a_number() -> None:
    view = Scene([replace(job("a"), steps=None), job("b", samples=7.0)]).view(policy=ROUND_POLICIES["srtf"])

    assert view.total is not None
    assert [total if total == total else None for total in view.total.tolist()] == [None, 7.0]


def test_a_parameter_is_known_by_name_and_default() -> None:
    las = REGISTRY["las"]

    assert las.parameters == {"queues_gpu_s": (3600.0, 36000.0)}
    assert las.with_parameters({"queues_gpu_s": (1.0,)}).parameters == {"queues_gpu_s": (1.0,)}


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(InputError, match='fifo has no parameter "speed"'):
        REGISTRY["fifo"].with_parameters({"speed": 1})


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r'policy "lifo" is not known.*fifo'):
        find_policy("lifo")


@pytest.mark.parametrize("name", TASK_POLICIES)
def test_a_policy_for_single_tasks_is_not_found_where_rounds_are_decided(name: str) -> None:
    assert find_policy(name) is TASK_POLICIES[name]
    with pytest.raises(
        InputError, match=f"{name} decides single tasks, which only the simulator runs; use one of fifo,"
    ):
        find_round_policy(name)


def test_the_constructor_that_plug_ins_were_written_with_still_makes_round_policies() -> None:
    old = Policy("old", "Nothing for anybody.", "made up", Level.GRANTS, ROUND_POLICIES["fifo"].allocate)

    assert isinstance(old, RoundPolicy)
    assert not old.knows
    assert not old.promises


def test_the_constructor_that_plug_ins_were_written_with_names_what_a_task_policy_is_made_with() -> None:
    with pytest.raises(InputError, match=r"write TaskPolicy\(name, summary, paper, plan, knows\)"):
        Policy("old", "Tasks.", "made up", Level.TASKS, lambda jobs, memory: (jobs, memory))


def test_only_shares_can_be_promised_anything_of() -> None:
    with pytest.raises(InputError, match="of level grants; leave out its promises"):
        replace(ROUND_POLICIES["fifo"], promises=frozenset({Promise.NO_ENVY}))


def test_imports_point_downwards_only() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], capture_output=True, text=True, cwd=ROOT
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_policies_do_not_import_each_other() -> None:
    """A file that exports a policy is imported by the registry alone; what policies share is in files that export none."""
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (SOURCES / "policies").glob("*.py")}
    registry = sources.pop("__init__")
    policies = {name for name, text in sources.items() if re.search(r"^POLIC(Y|IES)\b", text, re.MULTILINE)}

    def imported(text: str) -> set[str]:
        return set(re.findall(r"from fairlead\.policies\.(\w+)", text))

    assert {name: imports for name, text in sources.items() if (imports := imported(text) & policies)} == {}
    assert policies == set(re.findall(r"^    \*?(\w+)\.POLIC(?:Y|IES),", registry, re.MULTILINE))


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys; before = set(sys.modules); import fairlead; print(sorted(set(sys.modules) - before))"

    assert run_python(code).strip() == "['fairlead']"


def test_help_comes_without_the_heavy_parts() -> None:
    code = (
        "import sys\n"
        "from fairlead.cli.main import app\n"
        "try:\n    app(['simulate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'highspy', 'yaml', 'numba', 'matplotlib') if name in sys.modules])"
    )

    assert run_python(code).splitlines()[-1] == "[]"


def test_serving_does_not_import_the_simulator() -> None:
    """Neither the service nor an engine, nor what they use of the studies; the demo may import it when it is asked for."""
    code = (
        "import importlib, pkgutil, sys\n"
        "import fairlead.engines, fairlead.service\n"
        "for package in (fairlead.engines, fairlead.service):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        try:\n"
        "            importlib.import_module(module.name)\n"
        "        except ModuleNotFoundError as missing:\n"
        "            if missing.name != 'ray': raise\n"  # an extra, which the driver of Ray needs
        "print('fairlead.service.api.app' in sys.modules, sorted(n for n in sys.modules if n.startswith('fairlead.sim')))"
    )

    assert run_python(code).strip() == "True []"


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            homes.setdefault(name, []).append(str(path.relative_to(SOURCES)))
    doubles = {name: files for name, files in homes.items() if len(files) > 1}
    assert not doubles, f"one class per name in the whole package: {doubles}"


def test_nothing_pure_reads_a_clock_or_a_file() -> None:
    """Time is an argument and files are read in `traces`; only the journal and the loop do I/O."""
    doors = {"journal.py", "loop.py"}
    forbidden = re.compile(r"^\s*(import|from) (time|datetime|random|os|socket|subprocess)\b|\bopen\(", re.MULTILINE)
    violations = [
        str(path.relative_to(ROOT))
        for part in ("model", "numerics", "rates", "placement", "policies", "rounds")
        for path in (SOURCES / part).rglob("*.py")
        if path.name not in doors and forbidden.search(path.read_text(encoding="utf-8"))
    ]

    assert violations == []
