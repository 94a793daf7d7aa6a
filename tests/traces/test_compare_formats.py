"""Every format that can be imported goes straight into a comparison, with results by tenant and what was assumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fairlead.cli.main import main
from fairlead.traces.formats import FORMATS

from .test_importers import ACME, HELIOS, OPENB, PAI, PAI_JOBS, PHILLY, POLLUX, SACCT, SACCT_JSON

OWN = "id,tenant,model,arrival_s,gpus,steps\na,x,resnet50,0,1,9000\nb,y,resnet50,60,2,9000\n"
GAVEL = "\t".join(("M (batch size 8)", "run", "-n", "1", "4000", "0", "1")) + "\n"
GAVELS_SPEEDS = {"v100": {"('M (batch size 8)', 1)": {"null": 4.0}}, "p100": {"('M (batch size 8)', 1)": {"null": 2.0}}}
FILES = {
    "fairlead": ("jobs.csv", OWN),
    "philly-json": ("cluster_job_log", json.dumps(PHILLY)),
    "helios": ("helios.csv", HELIOS),
    "acme": ("acme.csv", ACME),
    "pai": ("pai_task_table.csv", PAI),
    "openb": ("openb.csv", OPENB),
    "pollux": ("pollux.csv", POLLUX),
    "sacct": ("sacct.txt", SACCT),
    "sacct-json": ("sacct.json", json.dumps(SACCT_JSON)),
    "gavel": ("small.trace", GAVEL),
}


def compare(path: Path, state: Path, *options: str) -> None:
    cluster = "v100:16,p100:16,t4:16,a100:16x8"
    sys.argv = ["fairlead", "compare", "--cluster", cluster, "--trace", str(path), "--policies", "fifo,las"]
    sys.argv += ["--skip-impossible", "--workers", "1", "--state", str(state), *options]
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code


@pytest.mark.parametrize("name", FILES)
def test_a_trace_of_every_format_is_compared(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, text = FILES[name]
    (tmp_path / file).write_text(text, encoding="utf-8")
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS, encoding="utf-8")
    (tmp_path / "speeds.json").write_text(json.dumps(GAVELS_SPEEDS), encoding="utf-8")
    options = ["--throughputs", str(tmp_path / "speeds.json")] if name == "gavel" else []

    compare(tmp_path / file, tmp_path / "state", *options, "-o", "json", "--report", str(tmp_path / "page.html"))
    answer = json.loads(capsys.readouterr().out)
    compare(tmp_path / file, tmp_path / "state", *options)
    table = capsys.readouterr().out

    assert answer["workload"]["format"] == name
    assert answer["failures"] == []
    assert {row["tenant"] for row in answer["tenants"]}
    assert len(answer["tenants"]) == 2 * answer["workload"]["tenants"]
    assert all(row["jct_mean_s"] is not None for row in answer["tenants"])
    assert answer["assumptions"]
    assert all(f"assumed: {note}" in table for note in answer["assumptions"])
    assert ("By tenant" in table) == (answer["workload"]["tenants"] > 1)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="assumptions"' in page


def test_the_philly_csv_is_compared_by_tenant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "philly-derived" / "philly.csv"
    if not path.exists():
        pytest.skip("needs ../shared/data/philly-derived/philly.csv")
    compare(path, tmp_path, "--jobs", "20")

    assert "By tenant" in capsys.readouterr().out


def test_no_format_is_forgotten() -> None:
    assert {known.name for known in FORMATS} == {*FILES, "philly-csv"}


def test_a_trace_of_gavel_without_its_speeds_gets_the_name_of_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.trace").write_text(GAVEL, encoding="utf-8")
    sys.argv = ["fairlead", "compare", "--cluster", "v100:4", "--trace", str(tmp_path / "small.trace")]
    sys.argv += ["--policies", "fifo"]
    with pytest.raises(SystemExit):
        main()

    assert "simulation_throughputs.json, with --throughputs" in capsys.readouterr().err


def test_who_the_jobs_of_a_trace_without_tenants_belong_to_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pollux.csv").write_text(POLLUX, encoding="utf-8")

    compare(tmp_path / "pollux.csv", tmp_path)

    assert "assumed: tenant: all jobs that name none belong to one; --tenants N" in capsys.readouterr().out
