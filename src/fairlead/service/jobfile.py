"""Job files, which users submit: one model for the command line, the API and the published JSON Schema.

    name: resnet
    resources:
      accelerators: [V100:4, P100:4]    # any of; also {V100: 4, P100: 4}, `V100:4`; or `ordered: [...]`: the first that fits
    run: python train.py
    # optional
    tenant: vision            model: resnet-50     (its speeds; default: the name)
    setup: ./fetch-data.sh    workdir: .           env: {SEED: 1}
    checkpoint_dir: ckpt      max_retries: 2       grace: 30s
    steps: 20000              weight: 1
    processes: per-node       (or per-gpu: starts `run` for each, with RANK, WORLD_SIZE, MASTER_ADDR ... set; default: once)
    resources: {memory: 8GiB} (that its processes may use together; default: no limit of its own)
    warm: true                (or the modules to import ahead: a restart takes a process that has imported them already)

`resources: {gpus: [1, 2, 4]}`, with or without accelerators, lists all GPU counts that the job can run on; the largest
is its reference. A file contains YAML or JSON; errors name the line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fairlead.engines.python_command import python_command
from fairlead.engines.requests import Command
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.jobs import MOST_GPUS, MOST_STEPS, JobSpec
from fairlead.model.units import parse_duration, parse_memory
from fairlead.traces.marked_yaml import Marked, parse_yaml

KIND = "job/1"
SCHEMA_ID = "urn:fairlead:job:1"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = ("FAIRLEAD_", "CUDA_VISIBLE_DEVICES")  # set by the engine
_LOADER = "LD_"  # would bypass the engine: its wrapper starts with these variables too

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
# PyTorch imports its compiler with the first optimiser, which takes as long as the rest of it.
WARM_MODULES = ("torch", "torch._dynamo", "fairlead.lease")

LONGEST_TYPE = 63  # characters in the name of a GPU type

Name = Annotated[str, Field(pattern=_NAME)]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]


def seconds(value: Any) -> Any:
    """Seconds from a number or a duration such as 30s; a pydantic validator."""
    if isinstance(value, bool):
        raise ValueError("is a boolean; wanted a duration such as 30s")
    try:
        return parse_duration(value) if isinstance(value, (str, int, float)) else value
    except InputError as error:
        raise ValueError(error.message) from None


def gib(value: Any) -> Any:
    """GiB from a number or a size such as 8GiB; a pydantic validator."""
    if isinstance(value, bool):
        raise ValueError("is a boolean; wanted a size such as 8GiB")
    try:
        return parse_memory(value) if isinstance(value, (str, int, float)) else value
    except InputError as error:
        raise ValueError(error.message) from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Accelerator(_Strict):
    """One alternative: a number of GPUs of one type."""

    type: Annotated[str, Field(max_length=LONGEST_TYPE)]
    gpus: Count = 1


def _alternatives(value: Any) -> Any:
    """A list of alternatives from `V100:4`, a list of those, or a mapping of types to counts."""
    if isinstance(value, Mapping):
        if set(value) <= {"type", "gpus"} and "type" in value:
            return [value]
        return [{"type": str(type_), "gpus": count} for type_, count in value.items()]
    if isinstance(value, str):
        return [_accelerator(value)]
    return [_accelerator(item) for item in value] if isinstance(value, list) else value


def _accelerator(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    type_, sign, count = value.partition(":")
    if sign and not count.strip().isdigit():
        raise ValueError(f'"{value}" is not TYPE:GPUS, such as V100:4')
    return {"type": type_.strip(), "gpus": int(count) if sign else 1}


Alternatives = Annotated[tuple[Accelerator, ...], BeforeValidator(_alternatives), Field(min_length=1, max_length=32)]


class Resources(_Strict):
    accelerators: Alternatives | None = None
    ordered: Alternatives | None = Field(
        default=None, description="Like accelerators, but in order of preference: the first that fits is used."
    )
    gpus: Annotated[
        tuple[Count, ...], BeforeValidator(lambda v: [v] if isinstance(v, int) else v), Field(max_length=64)
    ] = ()

    memory: Annotated[float, BeforeValidator(gib)] | None = Field(
        default=None, description="Memory of the machine that all processes of the job may use together, such as 8GiB."
    )

    @model_validator(mode="after")
    def _only_one_list(self) -> Resources:
        if self.accelerators and self.ordered:
            raise ValueError("has both accelerators and ordered; wanted one of them")
        return self

    @property
    def alternatives(self) -> tuple[Accelerator, ...]:
        return self.accelerators or self.ordered or ()


def _modules(value: Any) -> Any:
    """The modules of `warm`, which may also be true or false."""
    if isinstance(value, bool):
        return WARM_MODULES if value else ()
    if not isinstance(value, (list, tuple)):
        raise ValueError("wanted true, false, or a list of modules")
    for name in value:
        if not isinstance(name, str) or not _MODULE.match(name):
            raise ValueError(f'"{name}" is not the name of a module')
    return value


class JobFile(_Strict):
    """A training job as its user describes it."""

    fairlead: Literal["job/1"] | None = None
    name: Name
    tenant: Name | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    resources: Resources = Resources()
    run: Annotated[str, Field(min_length=1, max_length=65536)]
    setup: Annotated[str, Field(max_length=65536)] | None = None
    workdir: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    env: Annotated[dict[str, str], Field(max_length=256)] = {}
    checkpoint_dir: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    max_retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0
    grace: Annotated[float, BeforeValidator(seconds), Field(ge=0, le=3600)] = 30.0
    steps: Annotated[float, Field(gt=0, le=MOST_STEPS)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    processes: Literal["one", "per-node", "per-gpu"] = Field(
        default="one",
        description="How often `run` is started: once, or once for each node or GPU with RANK, WORLD_SIZE, LOCAL_RANK, "
        "NODE_RANK, MASTER_ADDR and MASTER_PORT set; the processes begin and end together.",
    )
    relaxed: bool = Field(
        default=False, description="The job may run on GPUs of several types at once (fairlead.lease.torch)."
    )

    warm: Annotated[tuple[str, ...], BeforeValidator(_modules), Field(max_length=64)] = Field(
        default=(),
        description="Modules that a waiting process has imported before the job restarts in it; true stands for "
        f"{', '.join(WARM_MODULES)}. `run` must be a plain Python command.",
    )

    @field_validator("env", mode="before")
    @classmethod
    def _plain_values(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: _as_text(item) for key, item in value.items()}

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not _VARIABLE.match(key):
                raise ValueError(f'"{key}" is not the name of a variable')
            if key.startswith(_RESERVED):
                raise ValueError(f"{key} is set by Fairlead; choose another name")
            if key.startswith(_LOADER):
                raise ValueError(
                    f"{key} would also change the loader of Fairlead's own wrapper; export it inside `run`"
                )
            if "\0" in text:
                raise ValueError(f"the value of {key} contains a null byte")
        return value

    @field_validator("run", "setup", "workdir", "checkpoint_dir", "model")
    @classmethod
    def _no_null(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("contains a null byte")
        return value

    @field_validator("resources")
    @classmethod
    def _known_types(cls, value: Resources) -> Resources:
        try:
            for item in value.alternatives:
                canonical_gpu(item.type)
        except InputError as error:
            raise ValueError(error.message) from None
        return value

    @model_validator(mode="after")
    def _warm_is_python(self) -> JobFile:
        if self.warm:
            try:
                python_command(self.run)
            except InputError as error:
                raise ValueError(
                    f"warm needs a plain Python command in run, such as python train.py: {error.message}"
                ) from None
        return self

    def spec(self, id_: str, tenant: str, arrival_s: float, capacity: Mapping[str, int]) -> JobSpec:
        """The job for the scheduler; `capacity` has the cluster's GPUs by type.

        Departs (from SkyPilot): a job has one reference width. Alternatives with another count than the first that the
        cluster can hold are not used, and of `ordered` ones only that first. A job that runs on several counts lists
        them in `gpus`.
        """
        alternatives = [(canonical_gpu(item.type), item.gpus) for item in self.resources.alternatives]
        widths = tuple(sorted(set(self.resources.gpus)))
        if widths:
            alternatives = [(type_, widths[-1]) for type_, _ in alternatives]
        fits = [(type_, count) for type_, count in alternatives if capacity.get(type_, 0) >= count]
        if self.resources.ordered:
            alternatives = (fits or alternatives)[:1]
        gpus = widths[-1] if widths else (fits or alternatives or [("", 1)])[0][1]
        types = tuple(dict.fromkeys(type_ for type_, count in alternatives if count == gpus))
        return JobSpec(
            id=id_,
            tenant=tenant,
            model=self.model or self.name,
            arrival_s=arrival_s,
            gpus=gpus,
            steps=self.steps,
            widths=widths,
            types=types,
            weight=self.weight,
            relaxed=self.relaxed,
        )

    def command(self) -> Command:
        """The command for the engine."""
        return Command(
            run=self.run,
            setup=self.setup,
            workdir=self.workdir,
            env=dict(self.env),
            checkpoint_dir=self.checkpoint_dir,
            grace_s=self.grace,
            max_retries=self.max_retries,
            processes=self.processes,
            warm=self.warm,
            memory_gib=self.resources.memory,
        )


def read_job(text: str, path: str, folder: str | None = None) -> JobFile:
    """The job in a file; a relative `workdir` is relative to `folder`, the directory of the file."""
    document = parse_yaml(text, path, "a job file")
    document.mapping(JobFile.model_fields)  # unknown and repeated keys, with their lines
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", path=path) from None
    try:
        job = JobFile.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise InputError(_message(first), path=path, line=_line(document, first["loc"])) from None
    if folder is None:
        return job
    return job.model_copy(update={"workdir": os.path.normpath(os.path.join(folder, job.workdir or "."))})


def job_schema() -> dict[str, Any]:
    """The published JSON Schema of a job file."""
    schema = JobFile.model_json_schema()
    short = {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}
    for name, choice in (
        ("accelerators", "the job may use any of them"),
        ("ordered", "the job uses the first that the cluster can hold"),
    ):
        schema["$defs"]["Resources"]["properties"][name] = {
            **short,
            "description": f"TYPE:GPUS, a list of those, or a mapping TYPE: GPUS; {choice}.",
        }
    schema["$defs"]["Resources"]["properties"]["memory"]["anyOf"] = [
        {"type": kind} for kind in ("number", "string", "null")
    ]
    schema["properties"]["grace"] = {"anyOf": [{"type": "number"}, {"type": "string"}], "default": "30s"}
    schema["properties"]["warm"] |= {
        "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
        "default": False,
    }
    for name in ("type", "items", "maxItems", "maxLength"):
        schema["properties"]["warm"].pop(name, None)
    schema["properties"]["env"]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _message(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"] if not isinstance(part, int))
    problem = error["msg"].removeprefix("Value error, ")
    value = error.get("input")
    shown = f' (found "{value}")' if isinstance(value, (str, int, float)) and error["type"] != "missing" else ""
    return f"{where or 'the job'}: {problem[0].lower()}{problem[1:]}{shown}"


def _line(document: Marked, place: tuple[int | str, ...]) -> int:
    """The line of the innermost value on the path `place` that exists in the file."""
    node = document
    for part in place:
        if isinstance(node.node, yaml.MappingNode):
            fields = node.mapping()
            if part not in fields:
                break
            node = fields[str(part)]
        elif isinstance(node.node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.node.value):
            node = node.items()[part]
        else:
            break
    return node.line
