"""The iteration-time formula, and profiles that use it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from building import job, setup, speed
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import InputError
from fairlead.rates.completion import complete, completed_profile
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.iteration import Links, Parts, communication_s, iteration_s
from fairlead.rates.profile import Layer, Profile
from fairlead.studies.compare.cases import common_digest

PARTS = Parts(batch=32, forward_s=0.1, backward_s=0.2, update_s=0.05, params_gib=1.0)
LINKS = Links(link_gib_per_s=10.0, net_gib_per_s=2.0)
ROW = speed("m", "v100", 2.5, gpus=4, batch=32.0)
FORMULA = Profile("formula", (), {}, {("m", "v100"): PARTS}, {"v100": LINKS})
BOTH = replace(FORMULA, speeds=(ROW,))


def test_communication_on_one_node_grows_with_its_gpus_and_is_slower_over_the_network() -> None:
    assert communication_s(PARTS, LINKS, 1, 1) == 0.0
    assert communication_s(PARTS, LINKS, 4, 1) == pytest.approx(0.1 * 3 / 4)
    assert communication_s(PARTS, LINKS, 4, 2) == pytest.approx(0.5)


def test_the_backward_pass_hides_four_fifths_of_the_communication() -> None:
    """One node of 4: max(0.2 + 0.2 x 0.075, 0.075) + 0.05 + 0.1; two nodes: max(0.2 + 0.1, 0.5) + 0.05 + 0.1."""
    assert iteration_s(PARTS, LINKS, 4, 1) == pytest.approx(0.365)
    assert iteration_s(PARTS, LINKS, 4, 2) == pytest.approx(0.65)


def test_loading_ahead_costs_only_what_it_cannot_hide() -> None:
    hidden, sticks_out = (replace(PARTS, load_cached_s=load_s) for load_s in (0.2, 0.4))

    assert iteration_s(hidden, LINKS, 1) == pytest.approx(0.35)
    assert iteration_s(sticks_out, LINKS, 1) == pytest.approx(0.5)
    assert iteration_s(replace(hidden, loads_ahead=False), LINKS, 1) == pytest.approx(0.55)


def test_cached_and_uncached_loading_are_averaged() -> None:
    parts = replace(PARTS, load_cached_s=0.0, load_disk_s=0.45, wait_disk_s=0.1, cached=0.75)

    assert iteration_s(parts, LINKS, 1) == pytest.approx(0.75 * 0.35 + 0.25 * (0.45 + 0.1 + 0.1))


# ---- a profile with parts --------------------------------------------------------------------------------------------


def test_a_profile_uses_the_formula_where_it_has_no_row() -> None:
    """An iteration takes 0.365 s on four GPUs of one node and 0.65 s on eight GPUs of two nodes."""
    assert FORMULA.samples_per_s("m", "v100", 4) == pytest.approx(4 * 32 / 0.365)
    assert FORMULA.samples_per_s("m", "v100", 8, 2) == pytest.approx(8 * 32 / 0.65)
    assert FORMULA.known("m", "v100", 8, 2).layer is Layer.FORMULA
    assert FORMULA.models == ("m",)
    assert FORMULA.samples_per_step("m", 4) == 128.0


def test_a_row_wins_over_the_formula_in_its_own_configuration_only() -> None:
    assert BOTH.known("m", "v100", 4) == replace(BOTH.known("m", "v100", 4), samples_per_s=320.0, layer=Layer.ROW)
    assert BOTH.known("m", "v100", 2).layer is Layer.FORMULA
    assert BOTH.known("m", "v100", 4, 2).layer is Layer.FORMULA


def test_a_card_named_with_its_memory_has_the_parts_and_links_of_its_chip() -> None:
    assert FORMULA.samples_per_s("m", "v100-32", 4) == FORMULA.samples_per_s("m", "v100", 4)


def test_an_estimator_reads_the_formula() -> None:
    estimator = TableEstimator(FORMULA, parse_short_form("v100:8x4"))

    assert estimator.best("m", 4).tolist() == pytest.approx([4 * 32 / 0.365])
    assert estimator.best("m", 8).tolist() == pytest.approx([8 * 32 / 0.65])


def test_parts_without_links_are_refused() -> None:
    with pytest.raises(InputError, match="m has parts on v100, but there are no links of v100; add them to links"):
        replace(FORMULA, links={})


def test_the_part_of_a_profile_that_a_run_needs_has_the_same_rates_and_steps() -> None:
    whole = replace(
        FORMULA,
        parts={("m", "k80"): replace(PARTS, batch=8.0), **FORMULA.parts, ("n", "v100"): PARTS},
        links={**FORMULA.links, "k80": LINKS},
    )

    part = whole.restricted_to({"m"}, ("v100",))

    assert part.models == ("m",)
    assert part.known("m", "v100", 8, 2) == whole.known("m", "v100", 8, 2)
    assert part.samples_per_step("m", 2) == whole.samples_per_step("m", 2) == 16.0


def test_completion_adds_no_row_that_the_formula_covers() -> None:
    rows = tuple(
        speed(model, gpu, rate, gpus=gpus)
        for model, rate in (("n", 1.0), ("o", 2.0), ("p", 3.0))
        for gpu in ("v100", "k80")
        for gpus in (1, 2)
    )
    profile = replace(BOTH, speeds=(ROW, *rows))

    filled = completed_profile(profile, complete(profile))

    assert filled.known("m", "v100", 2) == profile.known("m", "v100", 2)
    assert filled.samples_per_s("m", "k80", 2) > 0


def test_finished_runs_with_other_parts_are_not_reused() -> None:
    made = setup([job("a", model="m")], "v100:4x4", "fifo", FORMULA)
    slower = replace(FORMULA, parts={("m", "v100"): replace(PARTS, forward_s=0.2)})

    assert common_digest(made) != common_digest(replace(made, profile=slower))
