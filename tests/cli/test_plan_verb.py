"""`fairlead plan` on a trace, on a journal and on a snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import Fairlead

TRACE = "id,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"j{i},{'xy'[i % 2]},resnet50,{400 * i},{1 + i % 2},{20000 + 900 * (i * 7 % 11)}\n" for i in range(16)
)


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


COMMON = ["--cluster", "v100:2x2,k80:2x2", "--policy", "fifo", "--workers", "1"]


def test_a_plan_from_a_trace_with_prices_of_a_file(trace: Path, tmp_path: Path, fairlead: Fairlead) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("gpu,price,resale\nV100,100,\nk80,10,1\n")
    words = ("--trace", trace, *COMMON, "--prices", prices, "--budget", "200", "--seeds", "6", "--no-retire")
    code, out, err = fairlead("plan", *words)
    assert code == 0, err
    assert out.startswith("Buy 1x2xv100 for 200: mean JCT -")
    assert "What one more GPU would add" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_plan_from_a_journal_and_from_its_snapshot_in_nodes(trace: Path, tmp_path: Path, fairlead: Fairlead) -> None:
    journal = tmp_path / "run.jsonl"
    fairlead.summary("--trace", trace, "--cluster", "v100:2x2,k80:2x2", "--policy", "fifo", "--journal", journal)
    words = ("--from", f"{journal}@1h", "--budget", "1node", "--horizon", "4h", "--seeds", "1", "--workers", "1")
    code, out, err = fairlead("plan", *words, "-o", "json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    plans = {plan["name"]: plan for plan in document["plans"]}
    assert {"as it is", "buy 1x2xv100", "buy 1x2xk80", "retire v100", "retire k80"} <= set(plans)
    assert plans["buy 1x2xv100"]["figures"]["jct_s"]["mean"] < plans["as it is"]["figures"]["jct_s"]["mean"]
    assert plans["retire v100"]["figures"]["jct_s"]["mean"] > plans["as it is"]["figures"]["jct_s"]["mean"]
    assert document["budget"] == {"amount": 1.0, "unit": "nodes"}
    assert document["advised"] == "as it is"  # one seed shows nothing


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--budget 5000", "is money, but no GPU has a price"),
        ("--budget 4nodes --price v100=3", "is not money, but GPUs have prices"),
        ("--budget lots", 'budget "lots": wanted money'),
        ("--budget 4nodes --buy tpu9", "no speed on tpu9 is known here"),
        ("--budget 500 --price v100=3 --buy k80", "k80 has no price"),
        ("--budget 4nodes --resale k80=3", "--resale is money"),
        ("--budget 4nodes --from x", "two ways to begin"),
    ],
)
def test_mistakes_are_explained(words: str, message: str, trace: Path, fairlead: Fairlead) -> None:
    code, _, err = fairlead("plan", "--trace", trace, *COMMON, *words.split())
    assert (code, message in " ".join(err.split())) == (2, True), err
