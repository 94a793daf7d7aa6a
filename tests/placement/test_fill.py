"""Jobs in order, each on its preferred type among those with room."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.placement import fill
from fairlead.placement.fill import fill_in_order


def naive(order: list[int], width: list[int], liking: list[list[float]], free: list[int]) -> list[list[int]]:
    left, gpus = list(free), [[0] * len(free) for _ in width]
    for j in order:
        fitting = [t for t in range(len(left)) if liking[j][t] > 0 and left[t] >= width[j]]
        if fitting:
            t = max(fitting, key=lambda t: (liking[j][t], -t))
            gpus[j][t] = width[j]
            left[t] -= width[j]
    return gpus


@settings(max_examples=200)
@given(data=st.data(), jobs=st.integers(0, 12), types=st.integers(1, 3))
def test_it_does_what_the_plain_loop_does(data: st.DataObject, jobs: int, types: int) -> None:
    order = data.draw(st.permutations(range(jobs)))
    order = order[: data.draw(st.integers(0, jobs))]  # some jobs may be missing
    width = data.draw(st.lists(st.integers(1, 5), min_size=jobs, max_size=jobs))
    row = st.lists(st.sampled_from((0.0, 1.0, 2.0, 3.5)), min_size=types, max_size=types)
    liking = data.draw(st.lists(row, min_size=jobs, max_size=jobs))
    free = data.draw(st.lists(st.integers(0, 9), min_size=types, max_size=types))

    who, where, gpus = fill_in_order(
        np.array(order, dtype=np.int64),
        np.array(width, dtype=np.int64),
        np.array(liking, dtype=np.float64).reshape(jobs, types),
        np.array(free, dtype=np.int64),
    )

    table = np.zeros((jobs, types), dtype=np.int64)
    table[who, where] = gpus
    assert table.tolist() == naive(order, width, liking, free)
    assert who.tolist() == [j for j in order if j in who]


def test_an_order_longer_than_a_chunk_is_processed_to_its_end() -> None:
    """Wide jobs that do not fit come first; one narrow job at the very end fits."""
    jobs = 3 * fill._CHUNK
    width = np.full(jobs, 8)
    width[-1] = 1

    who, _, gpus = fill_in_order(np.arange(jobs), width, np.ones((jobs, 1)), np.array([4]))

    assert (who.tolist(), gpus.tolist()) == ([jobs - 1], [1])
