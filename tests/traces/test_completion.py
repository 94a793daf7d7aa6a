from __future__ import annotations

from statistics import mean, median

import numpy as np
import pytest

from fairlead.model.errors import InputError
from fairlead.rates.completion import Source, complete, completed_profile, source_of
from fairlead.rates.profile import Profile, Speed
from fairlead.traces.profiles import read_profile

from .conftest import Shared

TYPES = {"k80": 1.0, "p100": 4.0, "v100": 8.0, "a100": 20.0}
MODELS = {"a": 1.0, "b": 3.0, "c": 10.0, "d": 40.0, "e": 100.0, "f": 250.0}


def small(*without: tuple[str, str]) -> Profile:
    """A table in which every model keeps the same ratios between types."""
    cells = [(m, g) for m in MODELS for g in TYPES if (m, g) not in without]
    return Profile("small", tuple(Speed(m, g, 1, 1, 1.0, MODELS[m] * TYPES[g], "ours") for m, g in cells))


def test_a_table_of_equal_ratios_is_completed_nearly_exactly() -> None:
    completion = complete(small(("a", "a100"), ("d", "k80"), ("f", "v100")))
    for model, gpu in (("a", "a100"), ("d", "k80"), ("f", "v100")):
        assert completion.estimate(model, gpu).samples_per_s == pytest.approx(MODELS[model] * TYPES[gpu], rel=0.05)


def test_a_known_rate_stays_and_is_marked_as_measured() -> None:
    estimate = complete(small(("a", "a100"))).estimate("b", "v100")
    assert estimate.samples_per_s == pytest.approx(24.0)
    assert estimate.source is Source.MEASURED
    assert estimate.low == estimate.high == estimate.samples_per_s


def test_the_same_seed_gives_the_same_completion(default_profile: Profile) -> None:
    measured = measured_part(default_profile)
    one, same = complete(measured, seed=1), complete(measured, seed=1)
    assert one.log_rate.tolist() == same.log_rate.tolist()
    assert one.half_width.tolist() == same.half_width.tolist()


def test_a_new_model_measured_on_two_types_gets_the_others_with_an_interval(default_profile: Profile) -> None:
    rows = (Speed("mine", "v100", 1, 1, 32.0, 4.0, "ours"), Speed("mine", "t4", 1, 1, 32.0, 1.3, "ours"))
    completion = complete(Profile("with mine", (*default_profile.speeds, *rows), default_profile.facts))
    estimate = completion.estimate("mine", "h100")
    assert estimate.source is Source.COMPLETED
    assert estimate.low < estimate.samples_per_s < estimate.high
    assert 2.0 < estimate.samples_per_s / 128.0 < 10.0  # the H100 is 3 to 6 times a V100 in all that Lambda measured
    assert completion.estimate("mine", "m60").samples_per_s < 128.0  # a type known from estimates only


def test_a_completed_profile_has_a_row_in_every_cell_and_keeps_its_own(default_profile: Profile) -> None:
    profile = measured_part(default_profile)
    done = completed_profile(profile, complete(profile))
    columns = {(row.gpu, row.gpus, row.nodes) for row in profile.speeds}
    assert len(done.speeds) == len(profile.models) * len(columns)
    assert done.speeds[: len(profile.speeds)] == profile.speeds
    assert {source_of(row) for row in done.speeds[len(profile.speeds) :]} == {Source.COMPLETED}


def test_what_does_not_run_is_not_completed_away() -> None:
    stuck = Speed("g", "k80", 1, 1, 1.0, 0.0, "tried")
    profile = Profile("p", (*small().speeds, stuck, Speed("g", "v100", 1, 1, 1.0, 5.0, "ours")))
    done = completed_profile(profile, complete(profile))
    assert done.samples_per_s("g", "k80", 1) == 0.0
    assert done.samples_per_s("g", "a100", 1) > 5.0


def test_completed_rows_teach_nothing() -> None:
    profile = small(("a", "a100"))
    done = completed_profile(profile, complete(profile))
    assert complete(done).estimate("a", "a100").source is Source.COMPLETED


def test_few_cells_still_give_an_answer() -> None:
    profile = Profile("p", (Speed("a", "v100", 1, 1, 1.0, 5.0, "ours"), Speed("b", "k80", 1, 1, 1.0, 1.0, "ours")))
    estimate = complete(profile).estimate("a", "k80")
    assert 0 < estimate.low < estimate.high < float("inf")


def test_a_profile_without_speeds_is_refused() -> None:
    with pytest.raises(InputError, match="holds no speed above 0"):
        complete(Profile("p", (Speed("a", "v100", 1, 1, 1.0, 0.0, "tried"),)))
    with pytest.raises(InputError, match="coverage is 1"):
        complete(small(), coverage=1.0)


SEEDS = range(6)


def test_held_out_cells_of_gavels_table_come_back_within_15_percent(shared: Shared) -> None:
    table = read_profile(shared("gavel/simulation_throughputs.json"))
    check_held_out([held_out(table, seed) for seed in SEEDS])


def test_held_out_measurements_of_the_default_profile_come_back_within_15_percent(default_profile: Profile) -> None:
    measured = measured_part(default_profile)
    check_held_out([held_out(measured, seed) for seed in SEEDS])


def measured_part(profile: Profile) -> Profile:
    """Without estimates, which would give the held-out cells away."""
    rows = tuple(row for row in profile.speeds if row.steps_per_s > 0 and source_of(row) is Source.MEASURED)
    return Profile(profile.name, rows, profile.facts)


def held_out(profile: Profile, seed: int) -> tuple[float, float]:
    """Median error, and how often the 80 % interval holds the truth, on 30 % of the cells."""
    rows = [row for row in profile.speeds if row.steps_per_s > 0]
    away = np.random.default_rng(seed).random(len(rows)) < 0.3
    kept = tuple(row for row, out in zip(rows, away, strict=True) if not out)
    completion = complete(Profile(profile.name, kept), seed=seed)
    errors, hits = [], []
    for row, out in zip(rows, away, strict=True):
        # A model or a column of which nothing was left in cannot be asked for.
        if out and row.model in completion.models and (row.gpu, row.gpus, row.nodes) in completion.columns:
            estimate = completion.estimate(row.model, row.gpu, row.gpus, row.nodes)
            errors.append(abs(estimate.samples_per_s / row.samples_per_s - 1.0))
            hits.append(estimate.low <= row.samples_per_s <= estimate.high)
    assert len(errors) > 0.2 * len(rows)
    return median(errors), mean(hits)


def check_held_out(results: list[tuple[float, float]]) -> None:
    assert max(error for error, _ in results) < 0.15
    assert 0.72 <= mean(share for _, share in results) <= 0.88
    assert all(0.65 <= share <= 0.95 for _, share in results)  # of about 110 cells each


def test_a_profile_with_one_cell_is_completed_by_itself() -> None:
    profile = Profile("one", (Speed("m", "v100", 1, 1, 1.0, 5.0, "measured here"),))
    assert complete(profile).estimate("m", "v100").samples_per_s == pytest.approx(5.0)
