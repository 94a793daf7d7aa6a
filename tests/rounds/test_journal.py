"""A journal reads back as it was written, and errors in a broken one name the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import THREE, job, setup
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived, Finished, Refused
from fairlead.model.jobs import JobSpec
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.records import Records
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import Setup, simulate


def made() -> Setup:
    jobs = [job("a", 2, 5000.0, widths=(1, 2), types=("v100",)), job("b", samples=3000.0, tenant="other", weight=2.0)]
    world = World(mtbf_s=3000.0, repair_s=60.0, seed=2)
    return setup(jobs, "v100:2x1,k80:1", "las", world=world, restart_s=3.0, tenant_weight={"other": 2.0})


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    simulate(made(), tmp_path / "journal")
    return tmp_path / "journal"


def test_the_header_reads_back_as_the_set_up(journal: Path) -> None:
    header, original = JournalReader(journal).header(), made()

    assert header.cluster.nodes == original.cluster.nodes
    assert header.cluster.capacity.tolist() == original.cluster.capacity.tolist()
    assert header.profile == original.used_profile()
    assert (header.policy, header.restart_s, header.tenant_weight) == ("las", 3.0, {"other": 2.0})
    assert header.settings["round_s"] == 360.0
    assert header.more["world"]["mtbf_s"] == 3000.0


def test_the_first_line_names_the_format(journal: Path) -> None:
    assert journal.read_text().startswith('{"fairlead":"journal/2",')


def test_jobs_read_back_as_they_arrived(journal: Path) -> None:
    arrived = [record.spec for record in JournalReader(journal).records() if isinstance(record, Arrived)]

    assert tuple(arrived) == made().trace.jobs


def test_every_line_is_a_record(journal: Path) -> None:
    records = list(JournalReader(journal).records())

    assert len(records) == len(journal.read_text().splitlines()) - 1
    assert any(isinstance(record, Decision) for record in records)


def test_it_contains_no_timings_and_no_paths(journal: Path) -> None:
    text = journal.read_text()

    assert str(journal.parent) not in text
    for record in map(json.loads, text.splitlines()[1:]):
        assert not {"cpu_s", "wall_s", "decision_s"} & record.keys()


def test_an_incomplete_last_line_is_ignored(journal: Path) -> None:
    whole = list(JournalReader(journal).records())
    journal.write_text(journal.read_text()[:-5])

    assert len(list(JournalReader(journal).records())) == len(whole) - 1


@pytest.mark.parametrize(
    "line", ["not json", "{}", '{"event":"party","time_s":1}', '{"event":"finished","time_s":1,"jobs":["ghost"]}', "[]"]
)
def test_a_broken_line_is_named(journal: Path, line: str) -> None:
    lines = journal.read_text().splitlines()
    lines[3] = line
    journal.write_text("\n".join(lines) + "\n")

    with pytest.raises(InputError, match="journal line 4: not a journal record"):
        list(JournalReader(journal).records())


@pytest.mark.parametrize("text", ["", "hello\n", '{"fairlead":"trace/1"}\n', '{"fairlead":"journal/1"}\n', "[]\n"])
def test_a_file_that_is_not_a_journal_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)

    with pytest.raises(InputError, match="file line 1: not a journal record"):
        JournalReader(tmp_path / "file").header()


def test_a_journal_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the journal"):
        simulate(setup([job("a")], speeds=THREE), tmp_path / "no" / "such" / "folder")


def test_a_record_whose_reason_is_empty_reads_back() -> None:
    cluster = setup([job("a")], speeds=THREE).cluster
    row = Records(cluster, ["a"]).to_json(Refused(1.0, np.array([0]), ""))

    again = Records(cluster, ["a"]).from_json(row)

    assert isinstance(again, Refused)
    assert again.reason == ""


@pytest.mark.parametrize("steps", [5.0, 5, None])
@pytest.mark.parametrize(
    "more", [{}, {"weight": 1}, {"weight": 2.5}, {"run_limit_s": 60.0}, {"nodes": 1}, {"types": ("k80",)}]
)
def test_lines_of_single_jobs_are_written_as_json_writes_them(steps: float | None, more: dict[str, Any]) -> None:
    spec = JobSpec('a "quoted" é job', "t", "even", 1e-7, 2, steps, **more)
    records, by_json = Records(parse_short_form("v100:2")), Records(parse_short_form("v100:2"))
    one, nobody = np.array([0]), np.zeros(0, dtype=np.int64)

    for event in (
        Arrived(3.0, spec),
        Arrived(3, JobSpec("second", "t", "even", 3, 2, 7.0)),
        Finished(0.1 + 0.2, one, np.array([1e300])),
        Finished(7, one, np.array([4.0])),
        Finished(7.0, nobody, np.zeros(0)),
    ):
        assert records.to_line(event) == json.dumps(by_json.to_json(event), separators=(",", ":"))


def test_a_number_that_json_lacks_is_an_error_in_any_line() -> None:
    records = Records(parse_short_form("v100:2"))
    records.to_line(Arrived(0.0, JobSpec("a", "t", "even", 0.0, 1, 1.0)))

    with pytest.raises(ValueError, match="not JSON compliant"):
        records.to_line(Finished(1.0, np.array([0]), np.array([np.inf])))
