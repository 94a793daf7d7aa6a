"""The real GPUs of this machine, from NVIDIA's management library; without any, the reason."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
_NAME_LENGTH = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


@dataclass(frozen=True, slots=True)
class Device:
    index: int  # the number that CUDA_VISIBLE_DEVICES takes, with CUDA_DEVICE_ORDER=PCI_BUS_ID
    name: str  # as the driver spells it
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Detection:
    """The GPUs of this machine; `why_none` is the reason if there are none."""

    devices: tuple[Device, ...]
    why_none: str = ""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _NvmlError(Exception):
    pass


def detect(library: str = LIBRARY) -> Detection:
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return Detection((), f"no NVIDIA driver is installed ({library} is missing)")
    try:
        _call(nvml, "nvmlInit_v2")
        try:
            count = ctypes.c_uint()
            _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
            devices = tuple(_device(nvml, index) for index in range(count.value))
        finally:
            _call(nvml, "nvmlShutdown")
    except _NvmlError as error:
        return Detection((), str(error))
    return Detection(devices, "" if devices else "the NVIDIA driver sees no GPU")


def _device(nvml: ctypes.CDLL, index: int) -> Device:
    handle, name, memory = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_LENGTH), _Memory()
    _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    _call(nvml, "nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME_LENGTH))
    _call(nvml, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return Device(index, name.value.decode(errors="replace"), memory.total / 2**30)


def _call(nvml: ctypes.CDLL, function: str, *arguments: object) -> None:
    try:
        outcome = getattr(nvml, function)(*arguments)
    except AttributeError:
        raise _NvmlError(f"the NVIDIA driver is too old: it has no {function}") from None
    if outcome:
        raise _NvmlError(f"the NVIDIA driver does not answer: {function} returned {outcome}")
