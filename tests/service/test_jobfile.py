"""Job files: what a user may write, and what a slip is answered with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.service.jobfile import WARM_MODULES, JobFile, job_schema, read_job

HAS = {"v100": 8, "p100": 4, "h100": 8, "a100": 8}


def spec_of(text: str) -> Any:
    return read_job(text, "job.yaml").spec("1", "t", 5.0, HAS)


def with_resources(resources: str) -> Any:
    return spec_of(f"name: a\nresources: {resources}\nrun: 'true'\n")


@pytest.mark.parametrize(
    "resources",
    [
        "{accelerators: [V100:4, P100:4]}",
        "{accelerators: {V100: 4, P100: 4}}",
        "{accelerators: [{type: V100, gpus: 4}, 'Tesla-P100:4']}",
    ],
)
def test_alternatives_are_written_in_several_ways(resources: str) -> None:
    spec = with_resources(resources)

    assert (spec.gpus, spec.types, spec.widths) == (4, ("v100", "p100"), (4,))


def test_a_job_that_says_nothing_takes_one_gpu_of_any_type() -> None:
    spec = spec_of("name: a\nrun: 'true'\n")

    assert (spec.gpus, spec.types, spec.model, spec.tenant) == (1, (), "a", "t")


def test_an_elastic_job_names_its_counts() -> None:
    spec = with_resources("{accelerators: [V100], gpus: [4, 1, 2]}")

    assert (spec.gpus, spec.widths, spec.types) == (4, (1, 2, 4), ("v100",))


def test_the_first_alternative_that_the_cluster_holds_sets_the_width() -> None:
    assert with_resources("{accelerators: [H100:16, A100:8, V100:8, P100:4]}").types == ("a100", "v100")


@pytest.mark.parametrize(
    ("resources", "gpus", "types"),
    [
        ("{ordered: [V100:4, P100:4]}", 4, ("v100",)),
        ("{ordered: [H100:16, P100:4, V100:4]}", 4, ("p100",)),
        ("{ordered: [H100:16, A100:9]}", 16, ("h100",)),  # none fits: the refusal names the first
        ("{ordered: [P100, V100], gpus: [1, 8]}", 8, ("v100",)),
    ],
)
def test_of_ordered_alternatives_the_first_that_fits_is_the_one(
    resources: str, gpus: int, types: tuple[str, ...]
) -> None:
    spec = with_resources(resources)

    assert (spec.gpus, spec.types) == (gpus, types)


def test_durations_and_variables_are_read_as_people_write_them() -> None:
    job = read_job("name: a\nrun: 'true'\ngrace: 2m\nenv: {SEED: 1, DEBUG: true}\n", "job.yaml")

    assert (job.grace, job.env) == (120.0, {"SEED": "1", "DEBUG": "true"})


def test_json_is_read_as_well() -> None:
    assert read_job(json.dumps({"name": "a", "run": "true", "steps": 10}), "job.json").steps == 10


def test_a_relative_workdir_lies_where_the_file_lies() -> None:
    text = "name: a\nrun: 'true'\nworkdir: code\n"

    assert read_job(text, "job.yaml", "/home/me").workdir == "/home/me/code"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: a\n", 1, "run: field required"),
        ("name: a\nrun: x\nruns: y\n", 3, 'unknown key "runs"'),
        ("name: ../a\nrun: x\n", 1, "name: string should match"),
        ("name: a\nrun: x\nresources:\n  accelerators: [V100:4, V100:x]\n", 4, "is not TYPE:GPUS"),
        ("name: a\nrun: x\nresources:\n  accelerators:\n    - V100:4\n    - P100:0\n", 6, "greater than or equal to 1"),
        ("name: a\nrun: x\nresources: {gpus: [1, two]}\n", 3, "resources.gpus"),
        ("name: a\nrun: x\n\ngrace: soon\n", 4, 'duration "soon" is not understood'),
        ("name: a\nrun: x\nenv:\n  FAIRLEAD_TOKEN: secret\n", 4, "is set by Fairlead"),
        ("name: a\nrun: x\nenv:\n  LD_LIBRARY_PATH: /lib\n", 4, "export it inside `run`"),
        ("name: a\nrun: x\nenv:\n  1A: b\n", 4, "is not the name of a variable"),
        ("name: a\nrun: x\nmax_retries: -1\n", 3, "max_retries"),
        ("name: a\nrun: x\nsteps: .nan\n", 3, "steps"),
        ("name: a\nname: b\nrun: x\n", 2, "appears twice"),
        ("name: a\nrun: x\nresources: {accelerators: V100, ordered: P100}\n", 3, "wanted one of them"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_job(text, "job.yaml")

    assert words in str(error.value)
    assert error.value.line == line


def test_a_value_that_may_be_secret_is_not_shown_in_a_complaint() -> None:
    with pytest.raises(InputError) as error:
        read_job("name: a\nrun: x\nenv:\n  1A: hunter2\n", "job.yaml")

    assert "hunter2" not in str(error.value)


def test_the_schema_describes_every_field() -> None:
    schema = job_schema()

    assert set(schema["properties"]) == set(JobFile.model_fields)
    assert schema["required"] == ["name", "run"]


def test_the_published_schema_is_the_one_that_is_used() -> None:
    published = Path(__file__).parents[2] / "docs" / "job.schema.json"

    assert json.loads(published.read_text(encoding="utf-8")) == job_schema()


@pytest.mark.parametrize(
    ("warm", "modules"),
    [("true", WARM_MODULES), ("false", ()), ("[]", ()), ("[numpy, torch.nn]", ("numpy", "torch.nn"))],
)
def test_a_job_may_name_the_modules_of_a_warm_start(warm: str, modules: tuple[str, ...]) -> None:
    job = read_job(f"name: a\nrun: python train.py\nwarm: {warm}", "job.yaml")

    assert job.command().warm == modules
    assert JobFile.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("run", "warm", "problem"),
    [
        ("python train.py", "torch", "wanted true, false, or a list of modules"),
        ("python train.py", "[../x]", '"../x" is not the name of a module'),
        ("python train.py", "[1]", '"1" is not the name of a module'),
        ("torchrun train.py", "true", 'warm needs a plain Python command in run.*first word is "torchrun"'),
        ("python train.py > log", "[torch]", "because of '>'"),
    ],
)
def test_a_warm_start_that_is_not_possible_is_refused_at_once(run: str, warm: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_job(f"name: a\nrun: {run}\nwarm: {warm}", "job.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 300 + "]" * 300,
        "a: " + "[" * 100_000,
        '{"a": ' * 100_000,
        "- " * 100_000 + "x",
        "\n".join(f"{' ' * depth}a:" for depth in range(400)),
    ],
    ids=["brackets", "many brackets", "braces", "dashes", "lines"],
)
def test_a_deeply_nested_file_is_a_clear_error(text: str) -> None:
    with pytest.raises(InputError, match=r"job\.yaml: is nested too deeply for a job file; at most 100 levels"):
        read_job(f"name: a\nrun: x\n{text}" if text[0] == "a" else text, "job.yaml")
