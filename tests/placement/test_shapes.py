"""Jobs that need an exact number of nodes, with equally many GPUs on each."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest

from building import ROUND_POLICIES, Scene, job, run_checked
from fairlead.model.allocation import Spot
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.model.outcomes import Reason
from fairlead.placement.shapes import in_shape
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.records import spec_from_json, spec_to_json
from fairlead.rounds.snapshot import dump, load
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.summary import summarise


def shaped(id_: str, gpus: int, nodes: int) -> JobSpec:
    return replace(job(id_, gpus), nodes=nodes)


def fitted(scene: Scene, wanted: dict[str, Spot]) -> dict[str, Spot]:
    names = [spec.id for spec in scene.jobs]
    changes = in_shape(scene.view(), {names.index(name): spot for name, spot in wanted.items()})
    return {names[j]: spot for j, spot in changes.items()}


def test_a_job_on_two_nodes_gets_equal_parts_of_the_fullest_nodes_that_fit() -> None:
    scene = Scene([job("old", 1), shaped("a", 4, 2)], "v100:12", held={"old": ((1, 1),)})

    assert fitted(scene, {"a": ((0, 4),)}) == {"a": ((0, 2), (1, 2))}


def test_a_job_on_one_node_waits_rather_than_being_spread_and_another_takes_the_gap() -> None:
    scene = Scene(
        [job("x", 2), job("y", 2), shaped("a", 4, 1), shaped("b", 2, 1)],
        "v100:8",
        held={"x": ((0, 2),), "y": ((1, 2),)},
    )

    assert fitted(scene, {"a": ((0, 2), (1, 2))}) == {"b": ((0, 2),)}


def test_a_running_job_that_would_only_change_its_nodes_stays() -> None:
    scene = Scene([shaped("a", 4, 2)], "v100:8", held={"a": ((0, 2), (1, 2))})

    assert fitted(scene, {"a": ((0, 4),)}) == {}


def test_changes_of_other_jobs_are_returned_as_they_are() -> None:
    scene = Scene([job("x", 6), shaped("a", 2, 1)], "v100:8")
    changed: dict[int, Spot] = {0: ((0, 4), (1, 2))}

    assert in_shape(scene.view(), changed) is changed


def test_a_job_that_has_enough_gpus_but_not_on_its_number_of_nodes_waits_because_of_fragments() -> None:
    scene = Scene([job("x", 2), job("y", 2), shaped("a", 4, 1)], "v100:8", held={"x": ((0, 2),), "y": ((1, 2),)})
    policy = find_round_policy("fifo")

    decision, _ = decide(scene.view(policy=policy), policy, Memory())

    assert not decision.start.size
    assert decision.why is not None
    assert decision.why.outcomes.reason.tolist() == [Reason.FRAGMENTED]


def test_a_type_with_too_few_large_nodes_cannot_run_it() -> None:
    state = Scene([shaped("a", 8, 1), shaped("b", 8, 2)], "v100:8").state()

    assert [bool(row.any()) for row in state.best_rate[:2]] == [False, True]
    assert state.reason[0] == Reason.NEVER_FITS


def test_its_rates_are_those_on_its_number_of_nodes() -> None:
    state = Scene([shaped("a", 4, 1), shaped("b", 4, 4)], "v100:16").state()

    alone, spread = (state.estimator.at(state.specs[0].model, 0, 4, nodes) for nodes in (1, 4))
    assert state.best_rate[:2, 0].tolist() == [alone, spread]


@pytest.mark.parametrize(
    "more",
    [{"gpus": 4, "nodes": 3}, {"gpus": 4, "nodes": 2, "widths": (2, 4)}, {"gpus": 2, "nodes": 2, "relaxed": True}],
)
def test_a_shape_must_be_even_and_cannot_change(more: dict[str, object]) -> None:
    with pytest.raises(InputError, match="nodes"):
        JobSpec("a", "t", "m", 0.0, steps=None, **more)  # type: ignore[arg-type]


def test_a_shape_survives_the_journal_and_snapshots_and_other_jobs_have_no_such_field() -> None:
    specs = [shaped("a", 4, 2), job("b")]
    state = Scene(specs, "v100:8").state()

    assert [spec_from_json(spec_to_json(spec)) for spec in specs] == specs
    assert ["nodes" in spec_to_json(spec) for spec in specs] == [True, False]
    again = load(dump(state), state.cluster, state.estimator)
    assert again.specs == state.specs
    assert again.exact_nodes[:2].tolist() == [2, 0]
    again.fold(Arrived(0.0, replace(specs[0], id="c")))
    assert again.kind[2] == again.kind[0]


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_every_policy_runs_jobs_in_their_shapes(policy: Policy, tmp_path: Path) -> None:
    """The checker compares every start with the shape of its job."""
    worlds = (make_world(policy, example) for example in range(100))
    with_shapes = [made for made in worlds if sum(spec.nodes is not None for spec in made.trace.jobs) > 2][:3]

    for number, made in enumerate(with_shapes):
        result, _ = run_checked(made, tmp_path / f"{number}.jsonl")
        assert summarise(result.state).jobs_finished == len(made.trace.jobs)

    assert len(with_shapes) == 3
