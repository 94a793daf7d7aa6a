"""Fills in what a trace leaves out, by stated rules that depend only on the seed and the job's id.

The same job therefore gets the same values whatever else the file contains.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from hashlib import blake2b

from fairlead.model.errors import InputError
from fairlead.model.gpus import MEMORY_GIB
from fairlead.model.jobs import JobSpec
from fairlead.model.past import Past
from fairlead.model.words import counted, did_you_mean
from fairlead.rates.profile import Profile, chip_of
from fairlead.traces.importers.rows import Options, Row

DEFAULT_TENANT = "default"
# Models of Gavel's and Shockwave's traces contain their batch size, as the rows of their speed tables do.
GAVELS_NAME, GAVELS_TABLE = (
    "(batch size ",
    "the table of speeds of Gavel's traces, simulation_throughputs.json,",
)
# What may be filled in: the model, the tenant, and the type on which the duration was measured.
FILLABLE = ("model", "tenant", "type")
DRAWN = "drawn"  # by the seed, among the models of the profile
REFERENCE = "v100"  # if neither the file nor the user names the type that the job ran on
REFERENCE_NODE_GPUS = 8  # a wider job is assumed to have run on several nodes when its duration was measured


def pick(seed: int, purpose: str, job: str, among: int) -> int:
    """A number from 0 to `among` - 1, uniformly distributed, from a hash."""
    digest = blake2b(job.encode(), digest_size=8, key=f"{seed}:{purpose}".encode()).digest()
    return int.from_bytes(digest, "little") % among


class Assigner:
    """Turns rows into jobs and records the rules that it applied."""

    def __init__(self, options: Options, *, remembers: bool = True) -> None:
        self.options = options
        self._remembers = remembers  # what it filled in, by job
        self.filled: dict[str, tuple[str, ...]] = {}  # FILLABLE facts that the file lacks, by job
        self._used: dict[str, None] = {}  # notes, in the order of first use
        self._unknown: Counter[tuple[str, str]] = Counter()  # jobs by (type that they ran on, type used instead)
        self.past: dict[str, Past] = {}  # by job, if the file says what happened to them
        self.tells_past = False
        self._by_name: Counter[bool] = Counter()  # jobs by whether their name showed the model
        self._ended: Counter[str] = Counter()  # jobs that did not complete, by how they ended
        self._models: dict[tuple[int, str], tuple[str, ...]] = {}
        self._known = frozenset(options.profile.models) if options.profile else frozenset()
        for pattern, model in options.models:
            if options.profile and model not in self._known:
                hint = did_you_mean(model, self._known)
                raise InputError(f'models: "{pattern}" is mapped to "{model}", which is not in the profile; {hint}')
        self._gpus = set(options.profile.gpus) if options.profile else set()
        self._references: dict[tuple[str | None, tuple[str, ...]], str] = {}
        self._steps_per_s: dict[tuple[str, str, int, int | None], float] = {}

    def job(self, row: Row) -> JobSpec:
        model, steps, model_from = row.model, row.steps, ""
        filled: list[str] = []
        if model is None:
            model, model_from = self._model_of(row)
            filled += ["model"] if model_from == DRAWN else []
        elif self.options.profile and model not in self._known:
            table = GAVELS_TABLE if GAVELS_NAME in model else "a profile that has it"
            raise InputError(
                f'model "{model}" is not in profile "{self.options.profile.name}" (pass {table} with --throughputs); '
                f"{did_you_mean(model, self._known)}"
            )
        if steps is None and row.samples is not None:
            steps = row.samples / self._profile().samples_per_step(model, max(row.gpus, 1))
        if steps is None and row.duration_s is not None:
            reference = self._reference(row)
            steps = row.duration_s * self._rate(model, reference, row.gpus, row.nodes)
            where = f"{REFERENCE_NODE_GPUS} GPUs to a node" if row.nodes is None else "on as many nodes as the job had"
            self._note(f"steps: duration x rate of the model on {reference}, {where}")
            if self.options.reference is None and reference not in (row.ran_on, *row.types):
                filled.append("type")
                if row.ran_on:
                    self._unknown[row.ran_on, reference] += 1
        if row.ended:
            self._ended[row.ended] += 1
        if row.past is not None:
            self.tells_past = True
            self.past[row.id] = replace(row.past, model_from=model_from or row.past.model_from)
        filled += [] if row.tenant or self.options.tenants is None else ["tenant"]
        if filled and self._remembers:
            self.filled[row.id] = tuple(filled)
        return JobSpec(
            row.id, self._tenant(row), model, row.submit_s, row.gpus, steps,
            row.widths, row.types, row.weight, row.relaxed,
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        """All assumptions made so far."""
        unknown = tuple(
            f"{counted(jobs, 'job')} ran on {gpu}, whose speeds are not known; durations count as measured on {reference}; "
            f"give --alias {gpu}=TYPE, or a profile that has it with --throughputs"
            for (gpu, reference), jobs in self._unknown.items()
        )
        endings = ", ".join(f"{jobs} {ended}" for ended, jobs in self._ended.most_common())
        ended = (f"jobs that did not complete count as long as they ran: {endings} (--completed-only leaves them out)",)
        named = self._by_name[True]
        of = counted(self._by_name.total(), "job")
        names = (f"model: by the name of the job for {named} of {of} (--models); the column model_from says which",)
        return (*self._used, *(names if named else ()), *unknown, *(ended if endings else ()))

    def _tenant(self, row: Row) -> str:
        if row.tenant:
            if self.options.tenants is not None:
                self._note("tenant: jobs that name one keep it; --tenants spreads only those that name none")
            return row.tenant
        if self.options.tenants is None:
            self._note("tenant: all jobs that name none belong to one; --tenants N spreads them over N")
            return DEFAULT_TENANT
        self._note(f"tenant: one of {self.options.tenants}, by a hash of the job's id and seed {self.options.seed}")
        return f"tenant-{pick(self.options.seed, 'tenant', row.id, self.options.tenants) + 1}"

    def _model_of(self, row: Row) -> tuple[str, str]:
        """The model of a job whose file names none, and how it was found."""
        if self.options.models and row.past is not None:
            by_name = next((m for pattern, m in self.options.models if fnmatchcase(row.past.name, pattern)), None)
            self._by_name[by_name is not None] += 1
            if by_name is not None:
                return by_name, "name"
        return self._chosen_model(row), DRAWN

    def _chosen_model(self, row: Row) -> str:
        reference = self._reference(row)
        models = self._models.get((row.gpus, reference))
        if models is None:
            models = self._models[row.gpus, reference] = self._models_on(reference, row.gpus)
        return models[pick(self.options.seed, "model", row.id, len(models))]

    def _models_on(self, reference: str, gpus: int) -> tuple[str, ...]:
        profile = self._profile()
        self._note(
            f'model: one of those in profile "{profile.name}" that run there, by a hash of the job\'s id '
            f"and seed {self.options.seed}"
        )
        memory = MEMORY_GIB.get(reference, float("inf"))
        models = tuple(
            model
            for model in profile.models
            if profile.facts_of(model).memory_gib <= memory and self._rate(model, reference, gpus, None) > 0
        )
        if not models:
            raise InputError(
                f'no model of profile "{profile.name}" runs on {gpus} x {reference}; choose another type with --reference: '
                f"{did_you_mean(reference, profile.gpus)}"
            )
        return models

    def _rate(self, model: str, reference: str, gpus: int, ran_on_nodes: int | None) -> float:
        key = (model, reference, gpus, ran_on_nodes)
        rate = self._steps_per_s.get(key)
        if rate is None:
            profile = self._profile()
            nodes = -(-gpus // REFERENCE_NODE_GPUS) if ran_on_nodes is None else min(ran_on_nodes, gpus)
            samples = profile.samples_per_s(model, reference, gpus, nodes) if gpus > 0 else 0.0
            rate = self._steps_per_s[key] = samples / profile.samples_per_step(model, gpus) if samples else 0.0
        return rate

    def _reference(self, row: Row) -> str:
        """The type on which the job's duration was measured: the user's, the file's, or the default."""
        if self.options.reference is not None:
            return self.options.reference
        if row.ran_on is None and not row.types:
            return REFERENCE
        key = (row.ran_on, row.types)
        reference = self._references.get(key)
        if reference is None:
            reference = next(
                (gpu for gpu in (row.ran_on, *row.types) if gpu and {gpu, chip_of(gpu)} & self._gpus), REFERENCE
            )
            self._references[key] = reference
        return reference

    def _profile(self) -> Profile:
        if self.options.profile is None:
            raise InputError("the file has no steps; a profile is needed to compute them")
        return self.options.profile

    def _note(self, text: str) -> None:
        self._used.setdefault(text)
