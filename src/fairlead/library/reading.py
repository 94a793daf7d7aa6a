"""Workloads, speeds and clusters from files, with the options of the command line as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean, parse_pairs

if TYPE_CHECKING:
    from typing import Unpack

    from fairlead.model.cluster import Cluster
    from fairlead.rates.profile import Profile
    from fairlead.traces.formats import Trace

Pairs = Mapping[str, str] | Sequence[str] | None  # {"V100-SXM2": "v100"}, or words such as "V100-SXM2=v100"
File = str | PathLike[str]
K = TypeVar("K")


class ReadingOptions(TypedDict, total=False):
    """How a workload file is read; `Reading` has the defaults and the meanings."""

    trace_format: str | None
    throughputs: File | Profile | None
    tenants: int | None
    reference: str | None
    timezone: str
    alias: Pairs
    models: File | None
    completed_only: bool
    pin_types: bool
    skip_bad_lines: bool


ALWAYS_READ = ("throughputs", "alias")  # options about speeds and types, which count without a file too


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a workload file is read."""

    trace_format: str | None = None  # detected
    throughputs: File | Profile | None = None  # speeds: a profile file or Gavel's JSON; the built-in profile
    tenants: int | None = None  # divide the jobs of a file without tenants among this many
    reference: str | None = None  # GPU type on which durations were measured
    timezone: str = "UTC"  # of times without one
    alias: Pairs = None  # spellings of GPU names
    models: File | None = None  # file of job names and their models
    completed_only: bool = False  # leave out jobs that failed or were cancelled
    pin_types: bool = False  # keep every job on the GPU type that it ran on
    skip_bad_lines: bool = False  # leave out lines that cannot be read, and count them

    def profile(self) -> Profile:
        return open_profile(self.throughputs)

    def aliases(self) -> dict[str, str]:
        return gpu_aliases(self.alias)

    def choices(self) -> dict[str, Any]:
        """The options by the names that `traces.read_trace` and its `Options` use."""
        from fairlead.traces.model_names import read_model_names

        names = ("tenants", "reference", "timezone", "skip_bad_lines", "completed_only", "pin_types")
        models = () if self.models is None else read_model_names(str(self.models))
        return {"aliases": self.aliases(), "models": models, **{name: getattr(self, name) for name in names}}

    def read(self, path: File, profile: Profile, seed: int) -> Trace:
        from fairlead.traces.formats import read_trace as read

        return read(str(path), self.trace_format, profile=profile, seed=seed, **self.choices())


def read_trace(path: File, *, seed: int = 0, **options: Unpack[ReadingOptions]) -> Trace:
    """A workload from a file of any known format; `seed` chooses models and tenants where the file has none.

    The options are those of `fairlead trace convert`; see `Reading` for their meanings and defaults.
    """
    reading = Reading(**known(options, Reading))
    return reading.read(path, reading.profile(), seed)


def read_cluster(cluster: Cluster | File, *, alias: Pairs = None) -> Cluster:
    """A cluster from a file, or from GPUs by type such as `v100:8,p100:16x8`; a cluster is returned as it is."""
    from fairlead.model.cluster import Cluster as Hardware
    from fairlead.traces.clusters import read_cluster as read

    if isinstance(cluster, Hardware):
        return cluster
    if not isinstance(cluster, str | PathLike):
        raise InputError(
            f"a cluster is a file, GPUs by type such as 'v100:8', or a Cluster, not a {type(cluster).__name__}"
        )
    return read(str(cluster), gpu_aliases(alias))


def generate(
    cluster: Cluster | File,
    *,
    jobs: int = 100,
    load: float = 0.8,
    arrivals: str = "poisson",
    durations: str = "philly",
    width: Mapping[int, float] | None = None,
    model: Mapping[str, float] | None = None,
    tenants: int = 1,
    tenant_skew: float = 1.0,
    throughputs: File | Profile | None = None,
    seed: int = 0,
) -> Trace:
    """A workload that offers `load` to a cluster, as `fairlead trace generate` makes it.

    `arrivals` are `poisson` or `bursty`, `durations` are `philly` or `gavel`; `width` and `model` are weights of gang
    sizes and of models. Tenant k submits in proportion to 1 / k^tenant_skew.
    """
    from fairlead.traces.generate import generate as make

    return make(
        read_cluster(cluster),
        open_profile(throughputs),
        jobs=jobs,
        load=load,
        seed=seed,
        arrivals=arrivals,
        durations=durations,
        widths=width or None,
        models=model or None,
        tenants=tenants,
        tenant_skew=tenant_skew,
    )


def open_profile(throughputs: File | Profile | None) -> Profile:
    """The profile in the file, or the built-in profile; a profile is returned as it is."""
    from fairlead.rates.profile import Profile as Speeds
    from fairlead.traces.profiles import load_default_profile, read_profile

    if isinstance(throughputs, Speeds):
        return throughputs
    return read_profile(str(throughputs)) if throughputs else load_default_profile()


def gpu_aliases(pairs: Pairs) -> dict[str, str]:
    """Spellings of GPU names, from the user's configuration and from `alias`; the latter wins."""
    from fairlead.traces.configuration import read_aliases

    return {
        **read_aliases(),
        **(pairs if isinstance(pairs, Mapping) else parse_pairs(pairs or [], "--alias", "gpu=a100")),
    }


def known(options: Mapping[str, Any], *kinds: type) -> dict[str, Any]:
    """The options; one that is a field of none of the dataclasses is refused with the nearest name."""
    names = [name for kind in kinds for name in kind.__dataclass_fields__]  # type: ignore[attr-defined]
    for name in options:
        if name not in names:
            raise InputError(f'there is no option "{name}"; {did_you_mean(name, names)}')
    return dict(options)


def build(kind: type[K], options: Mapping[str, Any]) -> K:
    """The dataclass with those of the options that are its fields."""
    return kind(**{name: options[name] for name in kind.__dataclass_fields__ if name in options})  # type: ignore[attr-defined]
