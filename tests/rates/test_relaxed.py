"""The best integer split of k tasks over unequal GPUs, compared with all splits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.rates.relaxed import mixed_rate, split

rates = st.lists(
    st.sampled_from((0.0, 0.1, 0.3, 1.0, 1.5, 2.0, 3.0, 7.0)) | st.floats(0.01, 100.0), min_size=1, max_size=4
)


def every_split(k: int, gpus: int) -> Iterator[list[int]]:
    if gpus == 1:
        yield [k]
        return
    for first in range(k + 1):
        for rest in every_split(k - first, gpus - 1):
            yield [first, *rest]


def pace(rates: list[float], counts: list[int]) -> float:
    """The duration of a split, written independently of the code: a task on a GPU with rate 0 never ends."""
    return min(rate / count if rate else 0.0 for rate, count in zip(rates, counts, strict=True) if count)


@given(rates, st.integers(1, 8))
def test_no_other_split_is_faster(rates: list[float], k: int) -> None:
    if not any(rates):
        return

    counts = split(k, rates)

    assert sum(counts) == k
    assert min(counts) >= 0
    best = max(pace(rates, counts) for counts in every_split(k, len(rates)))
    assert split_rate(rates, counts) == pytest.approx(best, rel=1e-12)


@given(st.lists(st.tuples(st.sampled_from((0.0, 0.5, 1.0, 2.2, 6.9)), st.integers(0, 3)), min_size=1, max_size=3))
def test_equal_gpus_can_be_counted_together(parts: list[tuple[float, int]]) -> None:
    one_by_one = [rate for rate, gpus in parts for _ in range(gpus)]

    rate = mixed_rate(parts)

    if any(one_by_one):
        assert rate == split_rate(one_by_one, split(len(one_by_one), one_by_one))
    else:
        assert rate == 0.0


@given(st.floats(1e-3, 1e6), st.integers(1, 100))
def test_equal_gpus_have_exactly_the_rate_of_their_gang(rate: float, k: int) -> None:
    assert split(k, [rate] * k) == [1] * k
    assert mixed_rate([(rate, k)]) == rate
    assert mixed_rate([(rate, k), (rate, k)]) == rate


def test_a_slow_gpu_is_left_out_where_it_would_hold_up_the_rest() -> None:
    """Three V100s and a K80 that is seven times slower: one V100 takes a second task."""
    assert split(4, [7.0, 7.0, 7.0, 1.0]) == [2, 1, 1, 0]
    assert mixed_rate([(7.0, 3), (1.0, 1)]) == 3.5


def test_a_gpu_of_half_the_speed_takes_part() -> None:
    assert split(4, [2.0, 2.0, 1.0, 1.0]) == [1, 1, 1, 1]
    assert split(6, [2.0, 2.0, 1.0, 1.0]) == [2, 2, 1, 1]
    assert split(2, [2.0]) == [2]


def test_many_tasks_are_split_without_counting_them_one_by_one() -> None:
    assert split(10**9, [3.0, 1.0]) == [750_000_000, 250_000_000]


def test_tasks_have_to_run_somewhere() -> None:
    with pytest.raises(ValueError, match="wanted a GPU with a rate above 0"):
        split(2, [0.0, 0.0])


def test_a_worker_can_use_it_without_anything_installed() -> None:
    code = "import sys; import fairlead.rates.relaxed; print([m for m in ('numpy', 'pydantic', 'yaml') if m in sys.modules])"

    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def split_rate(rates: Sequence[float], counts: Sequence[int]) -> float:
    """The rate of the whole job: the GPU that finishes last sets the pace, and c tasks take c times as long as one."""
    return min(rate / count for rate, count in zip(rates, counts, strict=True) if count)
