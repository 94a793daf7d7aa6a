"""Real GPUs through NVIDIA's library: a small one is compiled here, so that the very calls are made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fairlead.engines.leases import Condition, Gpu, Lease
from fairlead.engines.local.devices import Slots, choose_devices
from fairlead.engines.local.nvml import Detection, Device, detect
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.requests import Command
from fairlead.model.cluster import Cluster, parse_short_form
from fairlead.model.errors import InputError
from waiting import until_told, wait_for

NVML = """
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static const char *names[] = {"Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"};
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(names + index); return 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) { strncpy(name, *(const char **)handle, length); return 0; }
#ifndef OLD
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) { memory->total = 16ull << 30; return 0; }
#endif
"""


def library(folder: Path, *flags: str) -> str:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build a small NVML with")
    (folder / "nvml.c").write_text(NVML)
    path = folder / "libnvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", str(path), str(folder / "nvml.c")], check=True)
    return str(path)


def test_gpus_are_found_with_name_and_memory(tmp_path: Path) -> None:
    found = detect(library(tmp_path, "-DINIT=0", "-DCOUNT=3"))

    assert found.devices[2] == Device(2, "NVIDIA A100-SXM4-40GB", 16.0)
    assert len(found.devices) == 3


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-DINIT=9", "-DCOUNT=3"), "nvmlInit_v2 returned 9"),
        (("-DINIT=0", "-DCOUNT=0"), "sees no GPU"),
        (("-DINIT=0", "-DCOUNT=1", "-DOLD"), "too old: it has no nvmlDeviceGetMemoryInfo"),
    ],
)
def test_a_driver_without_gpus_gives_the_reason(tmp_path: Path, flags: tuple[str, ...], why: str) -> None:
    found = detect(library(tmp_path, *flags))

    assert not found.devices
    assert why in found.why_none


def test_without_a_driver_there_is_none() -> None:
    found = detect("libnosuchthing.so.1")

    assert found == Detection((), "no NVIDIA driver is installed (libnosuchthing.so.1 is missing)")


HERE = Detection((Device(0, "Tesla V100-SXM2-16GB", 16), Device(1, "NVIDIA A100-SXM4-40GB", 40), Device(2, "Tesla V100-SXM2-16GB", 16)))  # fmt: skip


def test_real_gpus_are_given_to_the_nodes_of_their_type() -> None:
    devices = choose_devices(parse_short_form("a100:1x1,v100:2x1"), HERE)

    assert devices.numbers == {("a100-1", 0): 1, ("v100-1", 0): 0, ("v100-2", 0): 2}
    assert not devices.emulated
    assert "3 real GPUs" in devices.note


def test_a_cluster_file_that_does_not_fit_the_machine_is_refused() -> None:
    with pytest.raises(InputError, match=r"the cluster file has 4 x v100, this machine has 2 x v100, 1 x a100"):
        choose_devices(parse_short_form("v100:4"), HERE)


@pytest.mark.parametrize(("found", "emulate"), [(HERE, True), (Detection((), "no driver"), False)])
def test_slots_are_numbered_and_labelled_as_emulated(found: Detection, emulate: bool) -> None:
    devices = choose_devices(parse_short_form("v100:2x1,k80:2x2"), found, emulate=emulate)

    assert list(devices.numbers.values()) == [0, 1, 2, 3]
    assert devices.emulated
    assert devices.note.startswith("EMULATED")


def runner_on(cluster: Cluster, root: Path, first: Cluster | None = None) -> LocalRunner:
    """A runner on emulated GPUs that began with the nodes of `first`, which others have joined since."""
    nothing = Detection((), "no driver")
    return LocalRunner(root, Slots(choose_devices(first or cluster, nothing), nothing, lambda: cluster))


def test_after_a_restart_a_lease_keeps_its_device_and_no_other_lease_gets_it(tmp_path: Path) -> None:
    """Node v100-3 joined after v100-2, and was used before it."""
    now = parse_short_form("v100:3x1")
    before = runner_on(now, tmp_path / "state", first=parse_short_form("v100:1x1"))
    command = Command(f"echo $CUDA_VISIBLE_DEVICES > $FAIRLEAD_JOB\n{until_told('over')}", workdir=str(tmp_path))
    running = Lease("running", 1, (Gpu("v100-3", "v100", 0),), command)
    before.launch(running)

    after = runner_on(now, tmp_path / "state")
    after.adopt(running)
    leases = [running] + [Lease(node, 1, (Gpu(node, "v100", 0),), command) for node in ("v100-1", "v100-2")]
    for lease in leases[1:]:
        after.launch(lease)
    (tmp_path / "over").touch()
    for lease in leases:
        wait_for(lambda lease=lease: _code(after, lease) == 0, "the end of a lease")  # type: ignore[misc]

    numbers = [(tmp_path / lease.job).read_text().strip() for lease in leases]
    assert sorted(numbers) == ["0", "1", "2"]


def _code(runner: LocalRunner, lease: Lease) -> int | None:
    sight = runner.look([lease.key]).sight(lease.key)
    return sight.code if sight.condition is Condition.ENDED else None
