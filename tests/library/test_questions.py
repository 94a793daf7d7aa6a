"""`fairlead.allocate`, `audit`, `what_if` and `connect`: the answers of the commands as values."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.cli.what_if import what_if as command
from fairlead.model.errors import InputError, NotFoundError
from fairlead.service.client import UnreachableError, save_credentials

INSTANCE: dict[str, Any] = {
    "gpus": {"k80": 8, "v100": 8},
    "tenants": [
        {"name": "vision", "speedups": {"k80": 1, "v100": 7}},
        {"name": "speech", "speedups": {"k80": 1, "v100": 2}},
    ],
}


def test_an_instance_is_divided_and_audited_from_a_value_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text(json.dumps(INSTANCE))
    by_value, by_file = (fairlead.allocate(one, "oef-coop") for one in (INSTANCE, tmp_path / "instance.json"))

    assert by_value["shares"] == by_file["shares"]
    assert by_value["audit"]["max_envy"] == pytest.approx(0, abs=1e-6)
    again = fairlead.audit(by_value, lies=False)
    assert again == {"policy": "oef-coop", **by_value["audit"]}
    assert "exaggerate" in fairlead.audit(INSTANCE, policy="equal-share")["lies"]


def test_an_instance_without_a_rule_has_nothing_to_audit() -> None:
    with pytest.raises(InputError, match="an instance alone has nothing to audit; choose a rule with --policy"):
        fairlead.audit(INSTANCE)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    trace = fairlead.generate("v100:4", jobs=10, load=2, tenants=2, durations="gavel", seed=3)
    fairlead.simulate("v100:4", trace, "fifo", journal=path)
    return path


def test_a_journal_is_audited_and_takes_no_rule(journal: Path) -> None:
    assert fairlead.audit(journal)["policy"] == "fifo"
    with pytest.raises(InputError, match="--policy and --lies are for instances"):
        fairlead.audit(journal, policy="gavel")


def test_scenarios_are_simulated_side_by_side(journal: Path) -> None:
    reports: list[tuple[int, int]] = []
    answer = fairlead.what_if(
        f"{journal}@1h",
        policy=["srtf", "las:queues_gpu_s=60"],
        add=["4xv100"],
        scenario=["load=0 name=quiet"],
        horizon=7200,
        seeds=1,
        progress=lambda done, total: reports.append((done, total)),
    )

    names = [one.name for one in answer.scenarios]
    assert names == ["as it is", "srtf add=4xv100", "las:queues_gpu_s=60 add=4xv100", "quiet"]
    assert (answer.horizon_s, reports[-1]) == (7200.0, (8, 8))  # hours of four futures


def test_the_keywords_of_what_if_are_its_options() -> None:
    options = inspect.signature(command).parameters
    mine = inspect.signature(fairlead.what_if).parameters

    assert mine.keys() - options.keys() == {"progress"}
    assert options.keys() - mine.keys() == {"policy_file", "tenants", "output"}
    assert all(mine[name].default == options[name].default for name in ("from_", "load", "horizon", "seeds"))


def test_a_change_that_does_not_exist_is_refused(journal: Path) -> None:
    with pytest.raises(InputError, match='"polcy" is not a change; did you mean "policy"'):
        fairlead.what_if(str(journal), scenario=["polcy=fft"])


def test_a_saved_token_is_sent_only_to_its_own_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CREDENTIALS", str(tmp_path / "credentials.json"))
    monkeypatch.delenv("FAIRLEAD_URL", raising=False)
    monkeypatch.delenv("FAIRLEAD_TOKEN", raising=False)
    save_credentials("http://127.0.0.1:9", "secret")

    assert fairlead.connect().service.token == "secret"
    assert fairlead.connect("http://127.0.0.1:9/").service.token == "secret"
    assert fairlead.connect("http://127.0.0.1:10").service.token is None
    assert fairlead.connect("http://127.0.0.1:10", "mine").service.token == "mine"
    with pytest.raises(UnreachableError, match="is `fairlead serve` running there"):
        fairlead.connect().status()
    with pytest.raises(NotFoundError, match="is not the id of a job; ids look like j12"):
        fairlead.connect().wait("../x")


def test_what_can_be_awaited_is_what_can_be_called() -> None:
    calls, awaited = (
        {name: one for name, one in vars(kind).items() if callable(one) and not name.startswith("_")}
        for kind in (fairlead.Client, fairlead.AsyncClient)
    )
    assert calls.keys() - awaited.keys() == {"ask"}  # for the command line
    for name, method in awaited.items():
        assert inspect.signature(method).parameters == inspect.signature(calls[name]).parameters, name


def test_waiting_asynchronously_ends_with_the_job_or_with_the_time() -> None:
    phases = iter(["waiting", "running", "finished"])
    client = fairlead.AsyncClient(fairlead.Client(OneJob(phases)))  # type: ignore[arg-type]
    assert asyncio.run(client.wait("j1"))["phase"] == "finished"

    client = fairlead.AsyncClient(fairlead.Client(OneJob(repeat("running"))))  # type: ignore[arg-type]
    with pytest.raises(fairlead.FairleadError, match="job j1 is still running after 0s"):
        asyncio.run(client.wait("j1", timeout="0s"))


@dataclass
class OneJob:
    """Answers about a job, instead of a service."""

    phases: Iterator[str]

    def get(self, path: str, **query: object) -> dict[str, str]:
        return {"id": path.rpartition("/")[2], "phase": next(self.phases)}
