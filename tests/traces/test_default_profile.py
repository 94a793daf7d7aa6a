"""Every row of the profile that ships with Fairlead is cited, or its rule can be checked by hand."""

from __future__ import annotations

import re

import pytest

from fairlead.model.gpus import MEMORY_GIB
from fairlead.rates.completion import Source, source_of
from fairlead.rates.profile import Profile, Speed
from fairlead.traces.marked_yaml import parse_yaml
from fairlead.traces.profiles import default_profile_text

GPUS = [
    "k80",
    "m60",
    "p100",
    "1080ti",
    "titanxp",
    "t4",
    "v100",
    "a10",
    "3070",
    "3080",
    "3090",
    "4090",
    "l40s",
    "a100",
    "h100",
]
CITED = (
    r"Lambda deeplearning-benchmark [0-9a-f]{7}, .*: \dx ",
    r"Gavel OSDI'20, simulation_throughputs\.json: '.+' \w+, \d workers",
    r"Pollux OSDI'21 artifact [0-9a-f]{7}, T4 placements: \w+, local batch \d+",
    r"Sia SOSP'23 profiles, one GPU, best batch: ",
    r"TensorFlow benchmarks 2017, ResNet-50, synthetic, batch 64: \d x ",
    r"MosaicML llm-foundry [0-9a-f]{7}, MPT, 2048 tokens: \w+, \d+ x ",
)
ESTIMATE = re.compile(r"estimate: ([\d.e+-]+) x ([\w-]+)/(\d+)/(\d+); \S.*")

Key = tuple[str, str, int, int]


@pytest.fixture(scope="module")
def rows(default_profile: Profile) -> dict[Key, Speed]:
    return {(row.model, row.gpu, row.gpus, row.nodes): row for row in default_profile.speeds}


def test_every_row_is_cited_or_says_by_what_rule_it_was_estimated(rows: dict[Key, Speed]) -> None:
    for row in rows.values():
        if source_of(row) is Source.ESTIMATED:
            assert ESTIMATE.fullmatch(row.source), row
        else:
            assert any(re.match(pattern, row.source) for pattern in CITED), row


def test_every_estimate_is_the_stated_factor_times_the_row_that_it_names(rows: dict[Key, Speed]) -> None:
    for row in rows.values():
        match = ESTIMATE.fullmatch(row.source)
        if match:
            base = rows[row.model, match[2], int(match[3]), int(match[4])]
            assert row.samples_per_s == pytest.approx(float(match[1]) * base.samples_per_s, rel=1e-3), row


def test_every_estimate_rests_on_a_measurement_in_the_end(rows: dict[Key, Speed]) -> None:
    for row in rows.values():
        at = row
        for _ in range(6):
            match = ESTIMATE.fullmatch(at.source)
            if match is None:
                break
            at = rows[at.model, match[2], int(match[3]), int(match[4])]
        assert source_of(at) is Source.MEASURED, row


def test_no_speed_contradicts_the_memory_of_its_card(default_profile: Profile, rows: dict[Key, Speed]) -> None:
    for row in rows.values():
        if row.steps_per_s > 0:
            assert default_profile.facts_of(row.model).memory_gib <= MEMORY_GIB[row.gpu], row


def test_all_the_types_and_at_least_twelve_models_are_there(default_profile: Profile) -> None:
    assert len(default_profile.models) >= 12
    everywhere = [
        m for m in default_profile.models if all(default_profile.samples_per_s(m, gpu, 1) > 0 for gpu in GPUS)
    ]
    assert len(everywhere) >= 12
    assert set(GPUS) <= {row.gpu for row in default_profile.speeds} <= set(MEMORY_GIB)


def test_every_model_scales_within_a_node_and_across_two(default_profile: Profile, rows: dict[Key, Speed]) -> None:
    for model, gpu in {(row.model, row.gpu) for row in rows.values()}:
        assert default_profile.samples_per_s(model, gpu, 8) > 0
        assert any(row.nodes == 2 for row in rows.values() if (row.model, row.gpu) == (model, gpu))


def test_eight_gpus_are_never_more_than_eight_times_one(default_profile: Profile) -> None:
    for model, gpu in {(row.model, row.gpu) for row in default_profile.speeds}:
        one, eight = (default_profile.samples_per_s(model, gpu, n) for n in (1, 8))
        assert one == 0 or eight <= 8 * 1.06 * one, (model, gpu)  # 6 % for noise in what was measured


def test_no_estimate_makes_two_nodes_faster_than_one(default_profile: Profile, rows: dict[Key, Speed]) -> None:
    for row in rows.values():
        if row.nodes == 2 and source_of(row) is Source.ESTIMATED:
            on_one = default_profile.samples_per_s(row.model, row.gpu, row.gpus)
            assert row.samples_per_s <= 1.001 * on_one, row


def test_restarts_cost_a_start_and_the_checkpoint_there_and_back() -> None:
    head, _, _ = default_profile_text().partition("\n---\n")
    models = parse_yaml(head, "default", "a profile").mapping()["models"].mapping()
    for name, entry in models.items():
        facts = entry.mapping()
        assert facts["restart_s"].number() == pytest.approx(25 + 2 * facts["checkpoint_gib"].number() / 2, rel=1e-3), (
            name
        )
        assert facts["memory_gib"].number() > 0
