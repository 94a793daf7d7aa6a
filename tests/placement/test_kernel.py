"""Compiled code gives the same answers as the Python functions that define it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import ROUND_POLICIES, Scene, job, profile, setup, setups, speed
from fairlead.cli.entry import PURE
from fairlead.model.allocation import Grants, Shares
from fairlead.model.view import View
from fairlead.numerics import kernel
from fairlead.placement import fill
from fairlead.placement.rounding import NOTHING_OWED, Deficits, round_shares
from fairlead.policies.policy import Policy
from fairlead.studies.runs.simulate import Setup, simulate

pytestmark = pytest.mark.skipif(kernel.kernel is None, reason="Fairlead is installed without compiled code")
TYPES = ("v100", "p100", "k80", "t4", "a100", "h100", "l4", "a10", "p40")


def journal_of(made: Setup, *, compiled: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(kernel, "kernel", None)
        simulate(made, Path(folder) / "journal")
        return (Path(folder) / "journal").read_bytes()


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
@settings(max_examples=4)
@given(data=st.data())
def test_journals_are_the_same_byte_for_byte(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy, most=14))

    assert journal_of(made, compiled=True) == journal_of(made, compiled=False)


@pytest.mark.parametrize("placer", ["pack", "keep", "strict", "whole", "scatter"])
@pytest.mark.parametrize("policy", ["gavel", "gavel-sjf", "las"])
def test_crowded_gangs_of_many_widths_get_the_same_nodes(policy: str, placer: str) -> None:
    rng = np.random.default_rng(1)
    spread = tuple(speed("near", "v100", 4.0 / nodes, gpus=gpus, nodes=nodes) for gpus in (2, 4, 8) for nodes in (1, 2))
    speeds = profile({"near": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
    speeds = replace(speeds, speeds=(*speeds.speeds, *spread))
    jobs = [
        job(
            f"j{i:02}",
            int(rng.choice([1, 1, 2, 3, 4, 8])),
            float(rng.integers(1000, 40000)),
            at=float(rng.integers(0, 3000)),
            model=str(rng.choice(["near", "even"])),
        )
        for i in range(60)
    ]
    made = setup(jobs, "v100:16x4,k80:16x4", policy, speeds, restart_s=60.0, placer=placer)

    assert journal_of(made, compiled=True) == journal_of(made, compiled=False)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), types=st.integers(1, len(TYPES)))
def test_shares_of_any_number_of_types_are_rounded_the_same(seed: int, types: int) -> None:
    rng, names = np.random.default_rng(seed), TYPES[:types]
    speeds = profile({"m": {t: float(rng.choice([1.0, 2.0, 3.0])) for t in names}})
    jobs = [job(f"j{i:02}", int(rng.choice([1, 1, 2, 4])), model="m") for i in range(12)]
    view = Scene(jobs, ",".join(f"{t}:4" for t in names), speeds).view()
    owed, nobody = NOTHING_OWED, np.zeros(len(jobs), dtype=bool)

    for _ in range(4):
        shares = Shares(rng.integers(0, 8, (12, types)) / 8, np.arange(12), np.arange(12))
        (grants, owing, exact), (slow, slow_owing, slow_exact) = (
            round_shares(view, shares, owed, nobody),
            _rounded_in_python(view, shares, owed),
        )
        assert [column.tolist() for column in (grants.jobs, grants.types, grants.gpus)] == [
            column.tolist() for column in (slow.jobs, slow.types, slow.gpus)
        ]
        assert owing.gpus.tobytes() == slow_owing.gpus.tobytes()
        assert exact == slow_exact
        owed = owing


def _rounded_in_python(view: View, shares: Shares, owed: Deficits) -> tuple[Grants, Deficits, bool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "kernel", None)
        return round_shares(view, shares, owed, np.zeros(view.jobs, dtype=bool))


def test_positions_that_do_not_exist_are_an_error_and_touch_no_memory() -> None:
    one = np.ones(3, dtype=np.int64)
    for order in (np.array([5]), np.array([-1])):
        with pytest.raises(IndexError, match="not a position among 3"):
            fill.fill_in_order(order, one, np.ones((3, 2)), np.array([4, 4]))


@pytest.mark.parametrize("liking", [np.ones((3, 1)), np.ones((3, 3)), np.ones(2)], ids=["narrow", "wide", "short"])
def test_columns_of_another_length_are_an_error_and_touch_no_memory(liking: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match=f"array 3 has {liking.size} items; expected 6"):
        fill.fill_in_order(np.arange(3), np.ones(3, dtype=np.int64), liking, np.array([4, 4]))


def test_a_gang_without_gpus_is_an_error() -> None:
    free, types, one = np.array([4]), np.array([0]), np.array([1])

    for gpus in (0, -5):
        with pytest.raises(ValueError, match=f"a gang of {gpus} GPUs"):
            kernel.kernel.place_gangs(free, types, 1, np.array([gpus]), one, types, [()], bool)


def test_a_spot_without_gpus_is_an_error_at_once() -> None:
    """An exception that is set by a function that returns a value comes up anywhere later."""
    counts = [np.zeros(1, dtype=np.int64) for _ in range(6)]
    spot: Any = ((0,),)

    with pytest.raises((SystemError, IndexError)):
        kernel.kernel.occupy(
            np.array([0]), (spot,), [()], [()], np.array([0]), 5.0, np.zeros(1), *counts, np.zeros(1), -2
        )
    assert counts[4].tolist() == [0]


def test_a_last_spot_on_a_node_that_is_gone_is_not_preferred() -> None:
    free, types, one = np.array([4]), np.array([0]), np.array([1])

    for last in (((-3, 1),), ((1 << 40, 1),)):
        assert kernel.kernel.place_gangs(free.copy(), types, 1, one, one, types, [last], bool) == [((0, 1),)]


def test_columns_that_may_not_be_written_are_left_alone() -> None:
    free, types, one = np.array([4]), np.array([0]), np.array([1])
    free.flags.writeable = False

    with pytest.raises(ValueError, match="read-only"):
        kernel.kernel.place_gangs(free, types, 1, one, one, types, [()], bool)
    assert free.tolist() == [4]


@pytest.mark.parametrize("order", [np.array([True, False, True]), np.array([0.5, 1.0])], ids=["mask", "fractions"])
def test_numbers_that_are_not_whole_are_no_positions(order: Any) -> None:
    with pytest.raises(TypeError, match=f"an array of {order.dtype} where whole numbers are needed"):
        fill.fill_in_order(order, np.ones(3, dtype=np.int64), np.ones((3, 2)), np.array([4, 4]))


def test_shares_in_another_shape_are_an_error() -> None:
    speeds = profile({"m": {"v100": 2.0, "k80": 1.0}})
    view = Scene([job(f"j{i}", model="m") for i in range(3)], "v100:4,k80:4", speeds).view()
    turned = Shares(np.ones((2, 3)), np.arange(3), np.arange(3))

    with pytest.raises(ValueError, match="broadcast"):
        round_shares(view, turned, NOTHING_OWED, np.zeros(3, dtype=bool))


def test_columns_of_another_form_are_converted() -> None:
    order: Any = np.arange(6, dtype=np.int32)[::2]
    width: Any = np.ones(6, dtype=np.int16)

    jobs, types, gpus = fill.fill_in_order(order, width, np.asfortranarray(np.ones((6, 2))), np.array([1, 1]))

    assert (jobs.tolist(), types.tolist(), gpus.tolist()) == ([0, 2], [0, 1], [1, 1])


def test_code_that_was_compiled_from_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "VERSION", kernel.VERSION + 1)

    assert kernel._load() is None


def test_a_variable_switches_compiled_code_off_for_a_command() -> None:
    code = (
        "import sys; sys.argv = ['fairlead', '--version']; from fairlead.cli.entry import main; main()\n"
        "from fairlead.numerics.kernel import kernel; print(kernel)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, PURE: "1"}
    )

    assert done.stdout.splitlines()[-1] == "None"
