"""Three hundred seeded histories of the service with faults of every kind; `make simulate` runs more of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mutants import MUTANTS, ROOT
from simulate import CHUNK, reproduction, simulate
from simulated_faults import FAULTS

SEEDS = 300  # about 0.3 CPU seconds each


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_whatever_fails_nothing_is_lost_nothing_runs_twice_and_every_job_ends(first: int) -> None:
    outcome = simulate(range(first, first + CHUNK))

    assert not outcome.failed, "\n".join(f"{reproduction(seed)}   # {why}" for seed, why in outcome.failed.items())
    assert set(FAULTS) <= outcome.tally.keys(), "some kinds of faults never struck"


def test_each_bug_of_the_list_can_be_put_into_the_code_of_today(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        src = tmp_path / str(number)
        (src / "fairlead" / mutant.file).parent.mkdir(parents=True)
        shutil.copy(ROOT / "src" / "fairlead" / mutant.file, src / "fairlead" / mutant.file)

        mutant.put_into(src)
