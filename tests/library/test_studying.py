"""Study files and grids: every combination is a setting, budgets and kept runs are respected."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.cli.main import main
from fairlead.library.grids import grid_of
from fairlead.library.studying import read_study
from fairlead.model.errors import InputError

STUDY = """\
fairlead: study/1
cluster: [two.yaml, "v100:2,k80:2"]
generate: {durations: gavel, load: 1.5}
policies: [las, "las:queues_gpu_s=600"]
seeds: 0..1
jobs: 6
options: {restart_cost: 30s}
vary:
  round: [1m, 6m]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text("nodes: [{gpu: v100, gpus: 4}]")
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_a_grid_has_every_combination_and_knows_where_its_values_belong() -> None:
    points = grid_of({"round": ["1m", 360], "tenants": [2, 20], "jobs": [5]}, ("tenants",), {}, reads=False)

    assert [point.labels for point in points] == [
        {"round": "1m", "tenants": "2", "jobs": "5"},
        {"round": "1m", "tenants": "20", "jobs": "5"},
        {"round": "360", "tenants": "2", "jobs": "5"},
        {"round": "360", "tenants": "20", "jobs": "5"},
    ]
    assert (points[3].options, points[3].generator, points[3].jobs) == ({"round": 360}, {"tenants": 20}, 5)
    assert grid_of({"tenants": [3]}, (), {}, reads=True)[0].options == {
        "tenants": 3
    }  # without a generator: of the file that is read


@pytest.mark.parametrize(
    ("vary", "fixed", "message"),
    [
        ({"rounds": [1]}, {}, '"rounds" cannot be varied; did you mean "round"?'),
        ({"round": [1]}, {"round": 60}, '"round" is varied and also has the value 60; keep one of the two'),
        ({"round": "1m"}, {}, '"round" is varied without a list of values'),
        ({"load": [0.5, 1]}, {}, '"load" cannot be varied; write loads: [0.8, 1.5] instead'),
        ({"pin_types": [True, False]}, {}, '"pin_types" cannot be varied'),  # nothing is read from a file
        ({"round": []}, {}, '"round" is varied without a list of values'),
        ({"round": [60, "60"]}, {}, 'a value of "round" appears twice: 60, 60'),
        ({"jobs": ["many"]}, {}, "\"jobs\" is varied over 'many'; wanted whole numbers above 0"),
        ({"round": range(200), "jobs": range(200)}, {}, "this grid has 40000 points"),
    ],
)
def test_grids_that_make_no_sense_are_refused(vary: dict[str, Any], fixed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        grid_of(vary, (), fixed, reads=False)

    assert message in str(refused.value)


def test_a_study_is_a_comparison_for_every_combination(study: Path) -> None:
    compared = fairlead.study(study, state=study.parent / "state", workers=1)

    near = str(study.parent / "two.yaml")  # found beside the study file
    assert [setting.labels for setting in compared.settings] == [
        {"trace": "generated", "cluster": cluster, "round": length}
        for length in ("1m", "6m")
        for cluster in (near, "v100:2,k80:2")
    ]
    assert len(compared.runs) == 2 * 2 * 2 * 2
    alone = fairlead.compare(
        "v100:2,k80:2",
        "las",
        generate={"durations": "gavel", "load": 1.5},
        jobs=6,
        seeds=[1],
        round="6m",
        restart_cost=30,
        workers=1,
        state=study.parent / "other",
    )
    row = compared.runs.where(cluster="v100:2,k80:2", round="6m", policy="las", seed=1)
    assert row["jct_mean_s"][0] == alone.runs["jct_mean_s"][0]


def test_a_study_whose_budget_is_spent_goes_on_with_the_same_command(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        state = str(study.parent / "state")
        monkeypatch.setattr("sys.argv", ["fairlead", "study", str(study), "--state", state, "--workers", "1", *words])
        with pytest.raises(SystemExit, match=r"^0$"):
            main()
        return capsys.readouterr().out

    run("--budget", "1ms")
    shown = run("--budget", "1ms")
    whole = json.loads(run("--csv", str(study.parent / "runs.csv"), "-o", "json"))["settings"]

    assert "FAILED las (seeds 0, 1): not run, because the budget of CPU time was spent" in shown
    assert sum(setting["runs_found_done"] for setting in whole) == 2  # each call before has made one run
    assert not any(setting["failures"] for setting in whole)
    lines = (study.parent / "runs.csv").read_text().splitlines()[1:]
    assert {line["round"] for line in csv.DictReader(lines)} == {"1m", "6m"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("jobs: 6", "job: 6", 'line 6: a study has an unknown key "job"; did you mean "jobs"?'),
        ("policies:", "loads: [1]\nseed:", "unknown key"),
        ("study/1", "cluster/1", 'this is a "cluster/1" file; wanted study/1'),
        ("[1m, 6m]", "6m", 'line 9: round is "6m"; wanted a list'),
        ("{restart_cost: 30s}", "{seeds: 3}", '"seeds" does not belong into options; write it one level higher'),
        ("restart_cost", "restart_costs", 'line 7: there is no option "restart_costs"'),
        ("restart_cost: 30s", "workers: 2", 'line 7: there is no option "workers"'),
        ("jobs: 6", "jobs: many", 'line 6: jobs is "many"; wanted a whole number'),
        ("seeds: 0..1", "seeds: 1.5", "line 5: seeds is 1.5; wanted 0..9, or whole numbers"),
        ("{durations: gavel, load: 1.5}", "[a]", "line 3: generate is a list"),
        ("{durations: gavel, load: 1.5}", "{tenants: [1]}", '--generate tenants: "[1]" is not a number'),
        ("jobs: 6", "audit: maybe", "line 6: audit is neither true nor false"),
        ("  round: [", "  rounds: [", 'study.yaml: "rounds" cannot be varied'),
    ],
)
def test_mistakes_in_a_study_name_the_file(study: Path, before: str, after: str, message: str) -> None:
    study.write_text(STUDY.replace(before, after))

    with pytest.raises(InputError) as refused:
        fairlead.study(study, workers=1)

    assert str(study) in str(refused.value)
    assert message in str(refused.value)


def test_values_are_numbers_truths_or_words(study: Path) -> None:
    study.write_text(STUDY.replace("{restart_cost: 30s}", "{length_error: 1e-1, all_new: true, placer: keep}"))

    keywords = read_study(str(study))

    assert (keywords["length_error"], keywords["all_new"], keywords["placer"]) == (0.1, True, "keep")


def test_the_study_of_the_documentation_is_read_as_it_is_meant(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(fairlead: study/1\n.*?)^```", docs, re.DOTALL | re.MULTILINE)
    (tmp_path / "study.yaml").write_text(example)

    keywords = read_study(str(tmp_path / "study.yaml"))

    assert keywords["cluster"] == ["v100:8,k80:8", "lab.yaml"]
    assert keywords["policies"] == ["las", "fft", "fft:kappa=2"]
    assert keywords["vary"] == {"round": ["1m", "6m"], "tenants": [4, 20]}
    assert (keywords["jobs"], keywords["budget"], keywords["restart_cost"]) == (100, "2h", "30s")
