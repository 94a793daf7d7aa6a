"""The settings of Hops' paper, the fit of its jobs to Gavel's numbers, and sentences that keep to the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.rounds.state import State
from fairlead.studies.papers.claim_tables import Claim, Study
from fairlead.studies.papers.hops import claims
from fairlead.studies.papers.hops import experiment as study
from fairlead.studies.papers.hops.experiment import ABLATION, COMPARED, JOBS, PAPER, HopsJobs, run_one, small_cluster
from fairlead.studies.papers.spread import load_numbers
from fairlead.studies.runs.simulate import simulate


def test_the_clusters_are_those_of_the_paper() -> None:
    small, large = small_cluster(), study.large_cluster()

    assert (small.total_gpus, len(small.nodes)) == (64, 10)
    assert (large.total_gpus, len(large.nodes)) == (512, 64)


@pytest.mark.parametrize("widths", list(study.WIDTHS))
def test_the_classes_have_the_paper_s_proportions(widths: str) -> None:
    jobs = study.workload(0, 25, 10.0, HopsJobs(widths, 1.0, 0.01)).jobs
    hours = np.array(
        [spec.gpus * (spec.steps or 0) / 3600 / np.mean((1.0, 1.12, study.MODELS[spec.model][0])) for spec in jobs]
    )

    assert np.histogram(hours, (0, 1, 10, 50, 150))[0].tolist() == [7, 9, 7, 2]
    assert all(spec.gpus == spec.widths[(len(spec.widths) - 1) // 2] for spec in jobs)
    assert all(spec.widths[0] >= 1 and spec.widths[-1] <= 16 for spec in jobs)


def test_every_variant_runs_on_the_same_world() -> None:
    trace = study.workload(1, 6, 30.0, HopsJobs("narrow", 1.0, 0.25))
    variants = {**COMPARED, **ABLATION}

    runs = {name: run_one(small_cluster(), trace, variant, 1) for name, variant in variants.items()}

    assert all(set(numbers) == set(study.NUMBERS) for numbers in runs.values())
    assert all(numbers["makespan_h"] > 0 for numbers in runs.values())


def test_the_jobs_are_candidates_of_the_calibration_and_its_seeds_are_not_those_of_the_evaluation() -> None:
    for setting, mix in JOBS.items():
        assert mix in study.CANDIDATES[setting].values()
        assert set(study.CALIBRATION[setting]).isdisjoint({*study.FULL.small, *study.FULL.large})
    assert {*study.FULL.small, *study.FULL.large}.isdisjoint(range(1000))


def test_the_jobs_are_the_candidates_closest_to_the_paper_s_gavel_in_the_stored_calibration() -> None:
    stored = Path(__file__).parents[2] / "docs" / "reproduction" / "hops-full.json"
    parts = load_numbers(stored.read_text(encoding="utf-8"))["parts"]

    for setting, mix in JOBS.items():
        gavel, keys, candidates = PAPER[setting]["gavel"], claims.FITTED[setting], parts[f"{setting}, calibration"]
        distance = {
            name: np.mean([np.abs(np.log(np.array(values[key]) / gavel[key])) for key in keys])
            for name, values in candidates.items()
        }
        assert study.CANDIDATES[setting][min(distance, key=distance.__getitem__)] == mix


def test_idle_gpus_are_counted_once_per_round_also_if_there_are_plans_inside_rounds() -> None:
    cluster, variant = small_cluster(), COMPARED["sia, refilled"]
    trace = study.workload(1, 25, 40.0, HopsJobs("wide", 1.0, 0.25))
    counted: dict[bool, list[int]] = {False: [], True: []}  # by whether a round starts

    def count(state: State) -> None:
        counted[state.now_s % study.ROUND_S in (0.0, study.ROUND_S)].append(study.idle_while_waiting(state))

    simulate(study.setup_of(cluster, trace, variant, 1), tick=count)

    assert sum(counted[False]) > 0
    assert run_one(cluster, trace, variant, 1)["idle"] == np.mean(counted[True])


# ---- sentences -----------------------------------------------------------------------------------------------------


def numbers_of(**by_key: float) -> dict[str, list[float]]:
    return {key: [by_key.get(key, 1.0)] for key in study.NUMBERS}


def compared(rivals: dict[str, float], hops: float = 3.2, late: float = 3.2) -> dict[str, Any]:
    """A part in which only the JCT of the forms of Sia differs."""
    part = {name: numbers_of() for name in COMPARED}
    part[study.HOPS], part[study.OURS] = numbers_of(jct_h=hops), numbers_of(jct_h=late)
    return {**part, **{f"sia, {form}": numbers_of(jct_h=jct_h) for form, jct_h in rivals.items()}}


def jct_claim(part: dict[str, Any]) -> Claim:
    made: Study = claims.study(study.FULL, {"64 GPUs": part})
    table = next(t for t in made.tables if t.title.endswith("against sia"))
    return next(c for c in table.claims if c.claim.startswith("JCT"))


def test_the_form_of_sia_that_gives_the_paper_s_gain_is_named() -> None:
    paper = PAPER["64 GPUs"]["sia"]["jct_h"]

    claim = jct_claim(compared({"packed": 3.3, "scattered": paper, "one node": 3.3, "refilled": 3.3}))

    assert str(claim.verdict) == "reached (scattered); less (packed, one node)"
    assert claim.causes == ()


def test_a_cause_that_does_not_close_the_gap_does_not_explain_it() -> None:
    claim = jct_claim(compared({"packed": 3.3, "scattered": 3.3, "one node": 3.35, "refilled": 3.3}))

    assert str(claim.verdict) == "less"
    assert claim.is_unexplained

    claim = jct_claim(compared({"packed": 3.3, "scattered": 3.3, "one node": 3.3, "refilled": 3.3}, late=2.6))

    assert not claim.is_unexplained
    assert claim.causes[0].column == "hops-late against scattered"


def test_every_part_of_the_full_run_has_its_tables() -> None:
    """The calibration shows how far each candidate is from the paper's Gavel; the chosen one here is exactly there."""
    variants = {
        **{name: list(COMPARED) for name in PAPER},
        "64 GPUs, parts of Hops": list(ABLATION),
        "512 GPUs, priorities": list(study.PRIORITIES),
        "512 GPUs, sensing": list(study.SENSING),
        **{f"{name}, {study.WHOLE_NODES}": list(study.ON_WHOLE_NODES) for name in PAPER},
        **{f"{name}, {study.ONE_GPU}": list(study.WITH_ONE_GPU) for name in PAPER},
        **{f"{name}, calibration": list(study.CANDIDATES[name]) for name in PAPER},
    }
    parts = {part: {name: numbers_of() for name in names} for part, names in variants.items()}
    fit = parts["512 GPUs, calibration"]["wide, lengths x 1, from 0.01 GPU-h"]
    fit.update({key: [value] for key, value in PAPER["512 GPUs"]["gavel"].items()})

    made: Study = claims.study(study.FULL, parts)

    assert all(
        study.WHOLE_NODES in t.columns for t in made.tables if t.title.endswith(("against sia", "against gavel"))
    )
    table = next(t for t in made.tables if t.title.startswith("512 GPUs: Gavel for each candidate"))
    distances = {claim.claim: claim.ours[-1] for claim in table.claims}
    assert distances.pop("wide, lengths x 1, from 0.01 GPU-h") == "0.00 (0.00..0.00)"
    assert all(not cell.startswith("0.00") for cell in distances.values())
    assert set(dict(study.reproduce(study.FULL))) == {*parts, "512 GPUs, 30 jobs/h", "512 GPUs, 1200 jobs/h"}


def test_whole_nodes_are_a_candidate_for_sia_and_an_explanation_for_gavel() -> None:
    part = compared({"packed": 3.3, "scattered": 3.3, "one node": 3.3, "refilled": 3.3})
    paper = PAPER["64 GPUs"]
    on_whole = {f"{name}, {study.WHOLE_NODES}": numbers_of(jct_h=paper[name]["jct_h"]) for name in study.RIVALS}
    made = claims.study(study.FULL, {"64 GPUs": part, f"64 GPUs, {study.WHOLE_NODES}": on_whole})
    sia, gavel = (
        next(c for c in t.claims if c.claim.startswith("JCT")) for t in made.tables if t.title.endswith(study.RIVALS)
    )

    assert str(sia.verdict).startswith("reached (whole nodes)")
    assert "whole nodes" not in str(gavel.verdict)
    assert gavel.causes[0].column == study.WHOLE_NODES


def test_where_one_gpu_is_allowed_jobs_may_be_narrower_and_nothing_else_changes() -> None:
    before = study._small(1, JOBS["64 GPUs"])
    after = study._with_one_gpu(before)

    for one, other in zip(before[1].jobs, after[1].jobs, strict=True):
        assert other.widths == tuple(sorted({1, *one.widths}))
        assert (other.gpus, other.steps, other.arrival_s) == (one.gpus, one.steps, one.arrival_s)


def test_the_distance_of_a_form_is_zero_where_a_baseline_has_the_paper_s_numbers() -> None:
    part = compared({"packed": 3.3, "scattered": 3.3, "one node": 3.3, "refilled": 3.3})
    part["gavel, packed"] = {**numbers_of(), **{key: [value] for key, value in PAPER["64 GPUs"]["gavel"].items()}}

    made = claims.study(study.FULL, {"64 GPUs": part})

    table = next(t for t in made.tables if t.title.endswith(claims.FORM_DISTANCES))
    gavel = next(claim for claim in table.claims if claim.claim == "gavel")
    assert gavel.ours[table.columns.index("packed")].startswith("0.00")
    assert not gavel.ours[table.columns.index("scattered")].startswith("0.00")


def test_the_calibration_is_the_mean_of_two_forms_of_gavel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CANDIDATES", {"64 GPUs": {"short": HopsJobs("narrow", 0.1, 0.25)}})
    monkeypatch.setattr(study, "CALIBRATION", {"64 GPUs": range(1, 2)})

    part = study.calibrate("64 GPUs")

    case = study.workload(1, 25, 10.0, HopsJobs("narrow", 0.1, 0.25))
    jct_h = [run_one(small_cluster(), case, COMPARED[form], 1)["jct_h"] for form in study.FITTED_TO]
    assert part["short"]["jct_h"] == [pytest.approx(np.mean(jct_h))]
