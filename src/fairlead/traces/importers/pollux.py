"""Workloads of Pollux (OSDI'21) and Sia (SOSP'23): name,time,application,num_replicas,batch_size.

They name what is trained, but not for how long. An application is always trained for the same number of samples: the
iterations x batch size of the runs in Pollux's profiles (validation-*.csv, all epochs of its simulator).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, NamedTuple

from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean
from fairlead.traces.importers.rows import LeftOut, Options, Records, Row, TraceFormat, csv_records, number, whole

_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


class _Application(NamedTuple):
    model: str  # its name in our profile
    samples: float


APPLICATIONS: Mapping[str, _Application] = {
    "bert": _Application("bert-base", 14_774 * 12),  # 2 epochs of SQuAD
    "cifar10": _Application("resnet18-cifar10", 39_062 * 128),  # 100 epochs
    "deepspeech2": _Application("deepspeech2", 28_536 * 20),  # 80 epochs of CMU-ARCTIC
    "imagenet": _Application("resnet50", 576_525 * 200),  # 90 epochs
    "ncf": _Application("ncf", 194_174 * 256),  # 10 epochs of MovieLens
    "yolov3": _Application("yolov3", 103_444 * 8),  # 50 epochs of PASCAL-VOC
}


def records(file: IO[str], options: Options) -> Records:
    return csv_records(file, _COLUMNS)


def row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    name = record["application"]
    application = APPLICATIONS.get(name)
    if application is None:
        raise InputError(f'application "{name}" is not known; {did_you_mean(name, APPLICATIONS)}')
    own_name = options.profile is not None and name in options.profile.models
    return Row(
        id=record["name"],
        submit_s=number(record, "time"),
        gpus=whole(record, "num_replicas"),
        model=name if own_name else application.model,
        samples=application.samples,
    )


FORMAT = TraceFormat(
    name="pollux",
    title="Pollux and Sia workloads",
    detect=lambda head: head.startswith(",".join(_COLUMNS)),
    records=records,
    row=row,
    notes=(
        "steps: an application is trained for the samples of Pollux's own runs, at our batch per GPU",
        "jobs keep num_replicas; batch sizes do not adapt",
    ),
)
