"""The settings of Hops' paper, the fit of its jobs to Gavel's numbers, and sentences that keep to the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import Scene
from fairlead.model.jobs import JobSpec
from fairlead.rounds.state import State
from fairlead.studies.papers.claim_tables import Claim, Study
from fairlead.studies.papers.hops import claims
from fairlead.studies.papers.hops import experiment as study
from fairlead.studies.papers.hops import jobs as hops_jobs
from fairlead.studies.papers.hops.experiment import ABLATION, COMPARED, GAVEL_BY_LATENCY, PAPER, run_one
from fairlead.studies.papers.hops.gavel_by_latency import gavel_by_latency
from fairlead.studies.papers.hops.jobs import CANDIDATES, JOBS, HopsJobs, large_cluster, small_cluster, workload
from fairlead.studies.papers.hops.ratios import ages_s, alone_s
from fairlead.studies.papers.spread import load_numbers
from fairlead.studies.runs.simulate import simulate


def test_the_clusters_are_those_of_the_paper() -> None:
    small, large = small_cluster(), large_cluster()

    assert (small.total_gpus, len(small.nodes)) == (64, 10)
    assert (large.total_gpus, len(large.nodes)) == (512, 64)


@pytest.mark.parametrize("widths", list(hops_jobs.WIDTHS))
def test_the_classes_have_the_paper_s_proportions(widths: str) -> None:
    jobs = workload(0, 25, 10.0, HopsJobs(widths, 1.0, 0.01)).jobs
    hours = np.array(
        [spec.gpus * (spec.steps or 0) / 3600 / np.mean((1.0, 1.12, hops_jobs.MODELS[spec.model][0])) for spec in jobs]
    )

    assert np.histogram(hours, (0, 1, 10, 50, 150))[0].tolist() == [7, 9, 7, 2]
    assert all(spec.gpus == spec.widths[(len(spec.widths) - 1) // 2] for spec in jobs)
    assert all(spec.widths[0] >= 1 and spec.widths[-1] <= 16 for spec in jobs)


def test_every_variant_runs_on_the_same_world() -> None:
    trace = workload(1, 6, 30.0, HopsJobs("narrow", 1.0, 0.25))
    variants = {**COMPARED, **ABLATION, **GAVEL_BY_LATENCY}

    runs = {name: run_one(small_cluster(), trace, variant, 1) for name, variant in variants.items()}

    assert all(set(numbers) == set(study.NUMBERS) for numbers in runs.values())
    assert all(numbers["makespan_h"] > 0 for numbers in runs.values())


def test_the_jobs_are_candidates_of_the_calibration_and_its_seeds_are_not_those_of_the_evaluation() -> None:
    for setting, mix in JOBS.items():
        assert mix in CANDIDATES[setting].values()
        assert mix.network == 1.0, "the runs of the page have the network of `MODELS`"
        assert set(hops_jobs.CALIBRATION[setting]).isdisjoint({*study.FULL.small, *study.FULL.large})
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
        assert CANDIDATES[setting][min(distance, key=distance.__getitem__)] == mix


def test_idle_gpus_are_counted_once_per_round_also_if_there_are_plans_inside_rounds() -> None:
    cluster, variant = small_cluster(), COMPARED["sia, refilled"]
    trace = workload(1, 25, 40.0, HopsJobs("wide", 1.0, 0.25))
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
        **{f"{name}, {study.BY_LATENCY_RATIO}": list(GAVEL_BY_LATENCY) for name in PAPER},
        **{f"{name}, {jobs}": list(runs) for name in PAPER for jobs, (_, runs) in study.OTHER_JOBS.items()},
        **{f"{name}, calibration": list(CANDIDATES[name]) for name in PAPER},
    }
    parts = {part: {name: numbers_of() for name in names} for part, names in variants.items()}
    fit = parts["512 GPUs, calibration"][str(JOBS["512 GPUs"])]
    fit.update({key: [value] for key, value in PAPER["512 GPUs"]["gavel"].items()})

    made: Study = claims.study(study.FULL, parts)

    assert all(
        study.WHOLE_NODES in t.columns for t in made.tables if t.title.endswith(("against sia", "against gavel"))
    )
    table = next(t for t in made.tables if t.title.startswith("512 GPUs: Gavel for each candidate"))
    distances = {claim.claim: claim.ours[-1] for claim in table.claims}
    assert distances.pop(str(JOBS["512 GPUs"])) == "0.00 (0.00..0.00)"
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
    before = hops_jobs.small_case(1, JOBS["64 GPUs"])
    after = hops_jobs.with_one_gpu(before)

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

    case = workload(1, 25, 10.0, HopsJobs("narrow", 0.1, 0.25))
    jct_h = [run_one(small_cluster(), case, COMPARED[form], 1)["jct_h"] for form in study.FITTED_TO]
    assert part["short"]["jct_h"] == [pytest.approx(np.mean(jct_h))]


def test_priorities_are_explained_by_jobs_shorter_than_a_round_if_their_order_is_the_paper_s_without_it() -> None:
    def claim(later: float) -> Claim:
        part = {name: numbers_of(max_lr=3.0, later_lr=2.0) for name in study.PRIORITIES}
        part["latency-ratio"] = numbers_of(max_lr=7.0, later_lr=later)
        made: Study = claims.study(study.FULL, {"512 GPUs, priorities": part})
        return next(c for c in made.tables[0].claims if c.claim == claims.NUMBERS["max_lr"])

    assert str(claim(1.5).verdict) == "missed"
    assert not claim(1.5).is_unexplained
    assert claim(6.0).is_unexplained


# ---- the paper's numbers -------------------------------------------------------------------------------------------


def job(gpus: int, widths: tuple[int, ...], steps: float) -> JobSpec:
    return JobSpec("a", "t", "resnet50", 0.0, gpus, steps, widths)


def test_the_age_of_a_job_is_its_mean_time_over_types_at_the_mean_of_its_widths() -> None:
    """3,500 samples take 3,500, 3,125 and 1,458 s on one GPU of the types, of which a quarter, a quarter and half exist."""
    one_gpu_s = 0.25 * 3500.0 + 0.25 * 3500.0 / 1.12 + 0.5 * 3500.0 / 2.4

    ages = ages_s(large_cluster(), [job(2, (2, 5), 1750.0)], hops_jobs.profile())

    assert ages.tolist() == pytest.approx([one_gpu_s / 3.5])


@pytest.mark.parametrize(
    ("crowd", "speed"), [(512 / 3, 3.0), (512 / 4.5, 4.0), (512 / 5.5, 5.5), (1.0, 8.0), (1024.0, 0.5)]
)
def test_alone_a_job_runs_at_the_widths_that_its_part_of_the_gpus_allows(crowd: float, speed: float) -> None:
    """Its widths are 3, 4, 6 and 8. With 5.5 GPUs it is halfway between 5, on which it runs as on 4, and 6."""
    spec = job(4, (3, 4, 6, 8), 100.0)
    expected = 5.0 if speed == 5.5 else speed

    alone = alone_s(large_cluster(), [spec, spec], hops_jobs.profile(), np.array([crowd, 512.0 / 3]))

    assert alone[1] / alone[0] == pytest.approx(expected / 3.0)


def test_gavel_by_latency_gives_more_to_the_job_that_waited_longer() -> None:
    specs = [JobSpec(id_, "t", "resnet50", at_s, 8, 1e5, (8,)) for id_, at_s in (("late", 0.0), ("new", 900.0))]
    view = Scene(specs, "1080ti:8", hops_jobs.profile(), now_s=1000.0).view()

    shares, _ = gavel_by_latency(view, None)

    assert shares.gpus[:, 0] == pytest.approx([8 * 10 / 11, 8 / 11], rel=1e-3)


def test_elastic_gangs_change_only_the_jobs_that_have_16_gpus_and_not_their_work() -> None:
    before = hops_jobs.large_case(1, JOBS["512 GPUs"], 100)
    after = hops_jobs.with_elastic_gangs(before)
    changed = 0

    for one, other in zip(before[1].jobs, after[1].jobs, strict=True):
        assert other.gpus * (other.steps or 0) == pytest.approx(one.gpus * (one.steps or 0))
        if one.widths == (16,):
            assert (other.gpus, other.widths) == (8, (2, 4, 6, 8, 10, 12, 14, 16))
            changed += 1
        else:
            assert other == one
    assert changed >= 8
