from __future__ import annotations

from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.studies.fairness.instances import DIVISIONS, audit_lies, divide, parse_instance, parse_shares

# W = (1,2), (1,3), (1,4) on one slow and one fast GPU: OEF's hand-checkable example.
EXAMPLE: dict[str, Any] = {
    "gpus": {"slow": 1, "fast": 1},
    "tenants": [
        {"name": "a", "speedups": {"slow": 1, "fast": 2}},
        {"name": "b", "speedups": {"slow": 1, "fast": 3}},
        {"name": "c", "speedups": {"slow": 1, "fast": 4}},
    ],
}


def changed(**more: Any) -> dict[str, Any]:
    return {**EXAMPLE, **more}


@pytest.mark.parametrize(
    ("policy", "total", "envy", "incentive"),
    [
        ("equal-share", 4.0, 0.0, 1.0),
        ("gandiva-fair", 4.3333, 0.0, 1.0),
        ("gavel", 4.4082, 0.0667, 1.1020),
        ("oef-noncoop", 4.1538, 0.3333, 0.8308),
        ("oef-coop", 4.5, 0.0, 1.0),
    ],
)
def test_the_example_of_three_tenants_gives_the_totals_and_audits_of_the_paper_note(
    policy: str, total: float, envy: float, incentive: float
) -> None:
    answer = divide(parse_instance(EXAMPLE, "example"), policy)
    assert answer["total"] == pytest.approx(total, abs=1e-4)
    assert answer["audit"]["max_envy"] == pytest.approx(envy, abs=1e-4)
    assert answer["audit"]["min_sharing_incentive"] == pytest.approx(incentive, abs=1e-4)


def test_the_prices_of_cooperative_oef_pay_for_the_total() -> None:
    answer = divide(parse_instance(EXAMPLE, "example"), "oef-coop")
    assert sum(answer["prices"].values()) == pytest.approx(answer["total"])


@pytest.mark.parametrize("policy", DIVISIONS)
def test_a_weight_counts_like_that_many_equal_tenants(policy: str) -> None:
    twice = [{"name": "a1", "speedups": {"slow": 1, "fast": 2}}, *EXAMPLE["tenants"]]
    heavy = [{"name": "a", "weight": 2, "speedups": {"slow": 1, "fast": 2}}, *EXAMPLE["tenants"][1:]]
    one = divide(parse_instance(changed(tenants=twice), "x"), policy)
    other = divide(parse_instance(changed(tenants=heavy), "x"), policy)
    assert one["total"] == pytest.approx(other["total"], rel=1e-6)


def test_kinds_of_jobs_share_the_weight_of_their_tenant() -> None:
    jobs = [{"name": "x", "speedups": {"slow": 1, "fast": 2}}, {"name": "y", "speedups": {"slow": 1, "fast": 4}}]
    answer = divide(parse_instance(changed(tenants=[{"name": "t", "weight": 3, "jobs": jobs}]), "x"), "equal-share")
    assert answer["virtual_shares"]["t/x"] == {"slow": 0.5, "fast": 0.5}
    assert answer["shares"]["t"] == {"slow": 1.0, "fast": 1.0}


def test_an_allocation_can_be_read_back_and_audited_alone() -> None:
    answer = divide(parse_instance(EXAMPLE, "example"), "oef-coop")
    instance = parse_instance(answer["instance"], "answer")
    shares = parse_shares(answer, instance, "answer")
    assert shares.sum(axis=0) == pytest.approx([1.0, 1.0])


def test_exaggerating_pays_in_cooperative_mode_and_never_in_the_other() -> None:
    instance = parse_instance(EXAMPLE, "example")
    assert audit_lies(instance, "oef-coop")["exaggerate"]["gain"] > 0.1
    assert audit_lies(instance, "oef-noncoop")["exaggerate"]["gain"] == pytest.approx(0.0, abs=1e-9)
    assert audit_lies(instance, "oef-noncoop")["under-report"]["gain"] > 0.01


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (changed(gpus={}), 'no "gpus"'),
        (changed(gpus={"slow": 0, "fast": 1}), "gpus of slow is 0; wanted a number above 0"),
        (changed(gpus={"slow": float("nan"), "fast": 1}), "gpus of slow is nan"),
        (changed(tenants=[]), 'no "tenants"'),
        (changed(tenants=[{"name": "a", "speedups": {"b200": 1}}]), r'"a": GPU type "b200" is not in gpus'),
        (changed(tenants=[{"name": "a", "speedups": {"slow": 0, "fast": 0}}]), "can use no GPU type"),
        (changed(tenants=[{"name": "a", "speedups": {"slow": -1}}]), "wanted a number from 0"),
        (changed(tenants=[{"name": "a", "speedups": {"slow": float("inf")}}]), "speedup of"),
        (changed(tenants=[{"name": "a", "weight": -1, "speedups": {"slow": 1}}]), "weight of tenant"),
        (changed(tenants=[EXAMPLE["tenants"][0]] * 2), "no other tenant has"),
        (changed(tenants=[{"name": "a"}]), "has no speedups"),
        (changed(tenants=["a"]), "wanted a name"),
    ],
)
def test_a_bad_instance_is_refused_with_what_was_found_and_wanted(value: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse_instance(value, "instance.json")


def test_an_allocation_of_more_gpus_than_exist_is_refused() -> None:
    answer = divide(parse_instance(EXAMPLE, "example"), "equal-share")
    answer["virtual_shares"]["a"]["fast"] = 5.0
    with pytest.raises(InputError, match="GPUs of fast are assigned, but there are 1"):
        parse_shares(answer, parse_instance(EXAMPLE, "example"), "answer.json")
