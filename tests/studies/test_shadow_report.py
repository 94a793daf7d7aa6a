"""The report about a watched cluster: Slurm's own numbers next to those of simulated policies, with what was assumed."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.engines.slurm.watch_file import WatchRecord, job_line, node_line
from fairlead.engines.slurm.watched import FORGOTTEN, WatchedJob
from fairlead.model.errors import InputError
from fairlead.rounds.loop import Settings, When
from fairlead.studies.compare.as_it_was import NAME
from fairlead.studies.policy_lab.plugins import refer
from fairlead.studies.shadow.shadow_report import ShadowReport, report_window, verdicts
from fairlead.studies.shadow.window import UNKNOWN, read_window
from fairlead.traces.profiles import load_default_profile
from watched_record import HOUR, NODES, ROWS, T0, row, write_record

PROFILE = load_default_profile()


def record(*rows: WatchedJob, until_h: float = 10.0) -> WatchRecord:
    kept = WatchRecord()
    for node in NODES:
        kept.add(node_line(T0, node))
    for one in rows:
        kept.add(job_line(T0 + until_h * HOUR, one))
    return kept


def report(kept: WatchRecord, *policies: str) -> ShadowReport:
    window = read_window(kept, PROFILE)
    return report_window(window, [refer(name) for name in policies or ("fifo",)], Settings(60.0, When.EVENTS))


def test_the_row_of_slurm_has_its_own_starts_ends_and_waiting() -> None:
    result = report(record(*ROWS))
    past = next(run for run in result.answer.runs if run.policy == NAME)

    assert past.summary.jobs_finished == 3
    assert past.summary.makespan_s == pytest.approx(6 * HOUR)
    assert past.summary.tenants["b"].wait_s["mean"] == pytest.approx(4 * HOUR)
    assert {row.job: row.starts[NAME] for row in result.starts} == {"1": T0, "2": T0 + 2 * HOUR, "3": T0 + 4 * HOUR}


def test_a_policy_starts_the_waiting_job_on_the_idle_node_and_the_report_shows_both() -> None:
    result = report(record(*ROWS), "oef-coop")
    started = {row.job: row.starts["oef-coop"] for row in result.starts}

    assert sum(start is not None and start <= T0 + 120 for start in started.values()) >= 2
    waited = {name: sum(row.waiting_hours for row in rows) for name, rows in result.over_time.items()}
    assert waited[NAME] == pytest.approx(6.0)  # two hours of job 2, four of job 3
    assert waited["oef-coop"] < waited[NAME]


def test_gpu_hours_over_time_are_in_units_of_speed_and_add_up() -> None:
    result = report(record(*ROWS))
    past = [one for one in result.over_time[NAME] if one.tenant == "a"]
    speed = PROFILE_SPEED()

    assert sum(one.gpu_hours for one in past) == pytest.approx(4 * 4 * speed, rel=1e-6)
    assert [one.from_s for one in past] == [T0 + hour * HOUR for hour in range(4)]


def test_rounding_is_not_shown_as_waiting() -> None:
    chance = random.Random(2)
    rows = []
    for number in range(5):
        at_h = chance.random() / 10
        rows.append(row(str(number), "ab"[number % 2], at_h, at_h, at_h + chance.random(), gpus=chance.choice((1, 2))))
    hours = [one for over in report(record(*rows), "oef-coop").over_time.values() for one in over]

    assert not [one for one in hours if 0 < one.waiting_hours * HOUR < 1e-6]


def PROFILE_SPEED() -> float:  # noqa: N802
    """How much faster an unknown model is on the fast node than on the slow one, read from the window's own profile."""
    profile = read_window(record(*ROWS), PROFILE).profile
    return profile.samples_per_s(UNKNOWN, "v100", 1) / profile.samples_per_s(UNKNOWN, "k80", 1)


def test_the_audit_says_which_team_had_less_than_its_slice() -> None:
    result = report(record(*ROWS), "oef-coop")
    audit = result.audits[NAME]

    assert audit.tenants["b"].wanted_more_h == pytest.approx(4.0)
    assert audit.tenants["b"].sharing_incentive == pytest.approx(0.0)
    assert (audit.tenants["b"].envies, audit.tenants["a"].envies) == ({"a": None}, {})
    assert verdicts(audit)["b"].startswith("had only 0.00 of its slice for 4.0 h")
    assert result.audits["oef-coop"].tenants["b"].wanted_more_h < 4.0


def test_lengths_are_true_where_the_job_ran_and_models_come_from_the_profile() -> None:
    named = row("1", "a", 0, 1, 3, model="resnet50", model_from="name", gpus=2)
    window = read_window(record(named), PROFILE)
    (job,) = window.trace.jobs
    rate = PROFILE.samples_per_s("resnet50", "v100", 2, 1) / PROFILE.samples_per_step("resnet50", 2)

    assert job.steps == pytest.approx(2 * HOUR * rate)
    assert job.nodes == 1
    assert window.trace.past["1"].waited_s == HOUR
    assert "1 from the job's name" in window.trace.notes[-1]


def test_notes_for_a_tenant_quote_only_its_own_jobs() -> None:
    strange = [
        row(id_, tenant, 0, 1, 2, model=f"secret-of-{tenant}", model_from="comment") for id_, tenant in ("1a", "2b")
    ]

    notes = "\n".join(read_window(record(*strange), PROFILE, tenant="a").trace.notes)

    assert "secret-of-a" in notes
    assert "secret-of-b" not in notes


def test_every_assumption_is_stated() -> None:
    rows = (
        *ROWS,
        row("4", "b", 5, 6, None),
        replace(row("5", "b", 0, 1, 2, "slow", model="my-model", model_from="comment"), ended=FORGOTTEN),
        row("6", "b", 8, None, None),
        replace(row("7", "b", 1, None, None), ended="CANCELLED"),
    )
    kept = record(*rows)
    kept.add({"time_s": T0 + 3 * HOUR, "gap": [T0 + 2 * HOUR, "Slurm did not answer"]})
    kept.add({"time_s": T0 + 10 * HOUR, "aside": {"9": "it requests no GPUs"}})
    notes = "\n".join(read_window(kept, PROFILE).trace.notes)

    for words in (
        "5 unknown",
        "1 job still running: as long as they have run so far",
        "1 job that Slurm forgot",
        "count as unknown: my-model",
        "left out: 1 job that Slurm has not started yet",
        "left out: 1 job that ended before they ran",
        "1 because it requests no GPUs",
        "nobody watched for 1 h in 1 gap",
        "all tenants have the same weight",
    ):
        assert words in notes


def test_weights_are_those_of_slurms_accounts() -> None:
    kept = record(*ROWS)
    kept.add({"time_s": T0 + 10 * HOUR, "weights": {"a": 3.0, "elsewhere": 2.0}})
    assert read_window(kept, PROFILE).tenant_weight == {"a": 3.0}


def test_a_record_without_runs_has_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="watch for longer"):
        read_window(record(row("1", "a", 0, None, None)), PROFILE)


def test_the_command_prints_tables_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from fairlead.cli.main import app

    write_record(tmp_path, *ROWS)
    words = ["shadow", "report", "--state", str(tmp_path), "--policies", "fifo", "--every", "2h"]

    table = CliRunner().invoke(app, words, terminal_width=80)
    assert table.exit_code == 0, table.output
    for part in (
        "as it was",
        "GPU-hours in units of speed / hours that jobs waited",
        "Jobs that waited longest",
        "Fairness, fifo:",
        "assumed:",
    ):
        assert part in table.output
    page = tmp_path / "page.html"
    answer = CliRunner().invoke(app, [*words, "-o", "json", "--report", str(page)])
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert document["fairlead"] == "shadow/1"
    assert set(document["audits"]) == {"as it was", "fifo"}
    assert "as it was" in page.read_text()
