"""The rule by which measured numbers are held against a paper's, and sentences that keep to the numbers."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.causes import cause_of
from fairlead.studies.papers.claim_tables import Claim, Study, Table
from fairlead.studies.papers.fft.experiment import SIMULATED_BEDS
from fairlead.studies.papers.reproduction_page import page, section
from fairlead.studies.papers.results import find_results
from fairlead.studies.papers.run_all import STUDIES, scale_of
from fairlead.studies.papers.spread import SeedSpread
from fairlead.studies.papers.tally import BEFORE, BEFORE_BY_THESE_RULES, summary, tally_row
from fairlead.studies.papers.verdicts import Verdict, VerdictGroup, VerdictWord
from fairlead.studies.runs.store import Store

KEPT = Path(__file__).parents[2] / "docs" / "reproduction"


def over(mean: float, low: float | None = None, high: float | None = None) -> SeedSpread:
    return SeedSpread(mean, mean if low is None else low, mean if high is None else high)


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
    [
        ([over(1.5)], 1.5, "reached"),
        ([over(1.62)], 1.5, "reached"),  # the gain is larger by less than a quarter
        ([over(1.7)], 1.5, "more"),
        ([over(1.7), over(1.5)], 1.5, "reached"),
        ([over(1.41)], 1.5, "alike"),  # four fifths of the gain
        ([over(1.39)], 1.5, "less"),
        ([over(1.7), over(1.41)], 1.5, "alike"),
        ([over(1.7), over(1.3)], 1.5, "in part"),
        ([over(1.1), over(1.3)], 1.5, "less"),
        ([over(1.3), over(1.3)], (1.5, 1.3), "in part"),
        ([over(1.7), over(0.9)], 1.5, "missed"),
        ([over(1.0)], 1.5, "missed"),
        ([over(1.2, low=0.9)], 1.5, "less, not on every seed"),
        ([over(1.5, low=1.0)], 1.5, "reached, not on every seed"),
    ],
)
def test_a_gain(ours: list[SeedSpread], paper: Any, verdict: str) -> None:
    assert str(verdicts.gain(ours, paper)) == verdict


def test_a_gain_in_per_cent_has_nothing_at_zero() -> None:
    assert str(verdicts.gain([over(0.1)], 0.3, 0.0)) == "less"
    assert str(verdicts.gain([over(-0.1)], 0.3, 0.0)) == "missed"


def test_up_to_is_held_against_the_best_seed() -> None:
    assert str(verdicts.up_to([over(1.2, high=2.9), over(1.1, high=3.1)], 3.0)) == "reached"
    assert str(verdicts.up_to([over(1.2, high=2.9)], 3.0)) == "alike"
    assert str(verdicts.up_to([over(1.2, high=2.5)], 3.0)) == "less"
    assert str(verdicts.up_to([over(0.9, high=1.2)], 3.0)) == "missed"
    assert str(verdicts.up_to([over(2.0, high=4.0)], 3.0)) == "more"


def test_limits_and_baselines() -> None:
    assert str(verdicts.at_most([over(0.1), over(0.2)], 0.2)) == "holds"
    assert str(verdicts.at_most([over(0.1), over(0.3)], 0.2)) == "missed"
    assert str(verdicts.alike([over(0.40), over(0.43)], 0.38, 0.05)) == "alike"
    assert str(verdicts.alike([over(0.40), over(0.44)], 0.38, 0.05)) == "differs"


def test_never_is_judged_by_the_worst_seed_and_a_limit_for_an_average_is_not() -> None:
    values = [over(0.1, high=0.15), over(0.1, high=0.3)]

    assert str(verdicts.never_above(values, 0.2)) == "missed"
    assert str(verdicts.never_above(values, 0.3)) == "holds"
    assert str(verdicts.at_most(values, 0.2)) == "holds"


def test_an_open_baseline_is_judged_against_each_candidate_and_the_closest_counts() -> None:
    judged = {"packed": Verdict(VerdictWord.LESS), "scattered": Verdict(VerdictWord.REACHED, every_seed=False)}

    verdict = verdicts.against({**judged, "at random": Verdict(VerdictWord.MORE)})

    assert str(verdict) == "reached (scattered); more (at random); less (packed), not on every seed"
    assert verdict.group is VerdictGroup.REACHED
    assert verdict.is_contested
    assert not verdicts.against({"a": Verdict(VerdictWord.LESS), "b": Verdict(VerdictWord.MISSED)}).is_contested
    assert str(verdicts.against({"a": Verdict(VerdictWord.ALIKE), "b": Verdict(VerdictWord.ALIKE)})) == "alike"


def test_every_word_but_measured_counts_in_one_group() -> None:
    assert {word for word in VerdictWord if Verdict(word).group is None} == {VerdictWord.MEASURED}
    assert [word for word in VerdictWord if Verdict(word).is_success] == ["reached", "more", "holds", "alike"]


@pytest.mark.parametrize(
    ("without", "effect", "explains"),
    [
        (0.20, "the difference is gone, so this explains it", True),
        (0.15, "80 % of the difference is gone, so this explains most of it", True),
        (0.08, "33 % of the difference is gone, so this is a small part of it", False),
        (0.03, "the difference is not smaller, so this is not the cause", False),
    ],
)
def test_a_cause_is_tested_by_the_column_that_switches_it_off(without: float, effect: str, explains: bool) -> None:
    cause = cause_of("the baseline is packed", "scattered", over(0.03), over(without), 0.18)
    claim = Claim("c", "18 %", ("3 %", "-"), "", Verdict(VerdictWord.LESS), (cause,))

    assert cause.sentence == f'the baseline is packed. Switched off (column "scattered"), {effect}.'
    assert claim.is_unexplained is not explains
    with pytest.raises(AssertionError):
        Table("t", "seed 0", ("packed", "at random"), (claim,))


def test_the_counts_at_the_top_of_the_page() -> None:
    contested = verdicts.against({"a": Verdict(VerdictWord.ALIKE), "b": Verdict(VerdictWord.LESS)})
    judged = [Verdict(VerdictWord.MORE), contested, Verdict(VerdictWord.DIFFERS), Verdict(VerdictWord.MEASURED)]
    claims = tuple(Claim(f"claim {i}", "2", ("1",), "", verdict) for i, verdict in enumerate(judged))
    study = Study("oef", "OEF", True, "w", "r", (Table("t", "seed 0", ("a",), claims),))

    assert tally_row(study) == [
        "OEF", str(BEFORE["oef"]), str(BEFORE_BY_THESE_RULES["oef"]), "1 / 1 / 0 / 1", "2 of 3 (67 %)", "1", "1"
    ]  # fmt: skip
    assert " | ".join(tally_row(study)) in page([study], "c")
    assert "2 of 3 claims (67 %) are reached or alike, at least the two thirds" in summary([study])
    assert f"Not explained by any cause that was tested: OEF, {study.tables[0].title}: " in summary([study])


def test_a_sentence_goes_with_its_verdict() -> None:
    words = ("reached", "more", "in part", "less", "missed", "differs")
    sentences = {word: verdicts.why(Verdict(VerdictWord(word)), "below", "above") for word in words}

    assert sentences == {
        "reached": "", "more": "above", "in part": "below", "less": "below", "missed": "below", "differs": "below"
    }  # fmt: skip


# ---- sentences and the numbers of the kept results -----------------------------------------------------------------


def kept(name: str) -> dict[str, Any]:
    found, _ = find_results(Store(KEPT, "--results"), name, scale_of(name, False), "full", older=True)
    return copy.deepcopy(dict(found.parts))


def words(study: Study) -> str:
    """The section of a study in one line."""
    return " ".join(section(study).split())


def study_from(name: str, parts: dict[str, Any]) -> Study:
    _, claims = STUDIES[name]
    study: Study = claims.study(scale_of(name, False), parts)
    return study


def line(study: Study, claim: str) -> Claim:
    return next(c for table in study.tables for c in table.claims if c.claim == claim)


def test_oef_names_the_form_of_a_baseline_that_gives_the_paper_s_gain() -> None:
    parts = kept("oef")
    wide = parts["dynamic run, wide jobs"]
    for name in wide:
        wide[name]["coop_jct_reduction"] = over(0.05)
    for name in parts["dynamic run"]:
        parts["dynamic run"][name]["coop_jct_reduction"] = over(0.02)
    claim = line(study_from("oef", parts), "shorter JCT than gavel")
    assert str(claim.verdict) == "less"
    assert claim.is_unexplained

    wide["gavel, gangs scattered"]["coop_jct_reduction"] = over(0.18)
    claim = line(study_from("oef", parts), "shorter JCT than gavel")

    assert str(claim.verdict).startswith("reached (wide scattered); less (packed, scattered, over jobs packed, ")
    assert claim.verdict is not None
    assert claim.verdict.is_contested
    assert "the difference is gone" in claim.causes[0].sentence


def test_oef_says_plainly_when_a_lie_pays_in_one_run() -> None:
    """The claim is "never", so the worst seed decides; the lie is not the cause if the same happens without it."""
    parts = kept("oef")
    row = parts["dynamic run with one liar"]["oef-noncoop"]
    row["liar_jct_change"], row["without_lie_jct_change"] = over(0.04, -0.1, 0.2), over(0.0, -0.1, 0.1)

    study = study_from("oef", parts)

    lie = next(c for t in study.tables for c in t.claims if c.claim == "oef-noncoop" and t.title.startswith("runs"))
    assert str(lie.verdict) == "missed"
    assert "Missed: " in study.verdict
    assert "oef-noncoop" in study.verdict
    assert "the lie itself pays" in lie.causes[0].sentence
    assert "so this is not the cause" in lie.causes[0].sentence
    assert not lie.is_unexplained


def test_oef_says_which_promise_was_broken() -> None:
    parts = kept("oef")
    parts["broken promises, RTX 3070/3080/3090"]["oef-coop"]["envy"] = {"broken": 1, "of": 60, "worst": 0.01}
    parts["broken promises, RTX 3070/3080/3090"]["oef-coop"]["Pareto"] = {"broken": 0, "of": 60, "worst": 0.0}

    study = study_from("oef", parts)

    assert [str(c.verdict) for t in study.tables for c in t.claims if c.claim == "oef-coop" and c.verdict] == [
        "missed: envy"
    ]
    assert "need not be Pareto efficient" not in words(study)


def test_fft_names_who_is_ahead_of_it() -> None:
    parts = kept("fft")
    for trace in list(parts)[:2]:
        for row in parts[trace].values():
            row["times_better"]["fft"]["jct_h"] = over(1.2)
    assert "In mean JCT, fft is ahead of every baseline on both traces." in words(study_from("fft", parts))

    parts["trace 1, all 4 GPUs wide"]["allox"]["times_better"]["fft"]["jct_h"] = over(0.97, 0.9, 1.1)

    assert "In mean JCT, fft is ahead of all but allox on trace 1 (0.97x)." in words(study_from("fft", parts))


def test_fft_says_when_its_best_fit_is_not_the_workload_of_its_tables() -> None:
    parts = kept("fft")
    assert "which is what the other tables use" in words(study_from("fft", parts))

    fitted = next(fit for fit in parts["calibration"] if (fit["load"], fit["shortest_s"]) == (1.0, 60.0))
    fitted["load"] = 3.0

    assert "while the other tables use a load of 1 with jobs from 60 s" in words(study_from("fft", parts))


def test_fft_counts_claims_that_succeed_in_one_reading_of_its_baselines() -> None:
    parts = {name: part for name, part in kept("fft").items() if name not in SIMULATED_BEDS}
    for trace in list(parts)[:2]:
        for name, row in parts[trace].items():
            wins = 100.0 if name in ("gavel-sjf", "tiresias-fft (random queue)", "allox") else 0.5
            row["times_better"]["fft"] = {metric: over(wins) for metric in row["times_better"]["fft"]}

    text = words(study_from("fft", parts))

    packed, scattered = re.findall(r"the reading of the fit, (\d+) succeed with packed baselines and (\d+)", text)[0]
    assert int(packed) >= 11  # JCT, starvation, migrations, FTF and makespan
    assert int(scattered) <= int(packed) - 11


def test_hare_does_not_say_that_allox_is_ahead_of_hlas_where_it_is_not() -> None:
    parts = kept("hare")
    assert "It is ahead of `hlas` in: " in words(study_from("hare", parts))

    for name, part in parts.items():
        if name.startswith("headline"):
            part["jct"]["allox"] = [3.0 * jct for jct in part["jct"]["hlas"]]
    study = study_from("hare", parts)

    assert "It is ahead of `hlas` in: " not in words(study)
    assert "AlloX is within 1.5 times" not in words(study)
    assert str(line(study, "allox / hare").verdict) == "more"
