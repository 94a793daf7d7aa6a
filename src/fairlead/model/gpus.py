"""GPU types by one lower-case name each, and how much memory a card has when a cluster file does not say."""

from __future__ import annotations

import re

# Memory of the common variant, GiB (vendors' data sheets). A cluster file may override it.
MEMORY_GIB: dict[str, float] = {
    "k80": 12.0,  # one of the two chips on a card, which is what drivers show as a GPU
    "m60": 8.0,
    "p100": 16.0,
    "1080ti": 11.0,
    "titanxp": 12.0,
    "t4": 16.0,
    "2080ti": 11.0,
    "v100": 16.0,
    "v100-32": 32.0,
    "rtx6000": 24.0,
    "a10": 24.0,
    "a30": 24.0,
    "3070": 8.0,
    "3080": 10.0,
    "3090": 24.0,
    "a6000": 48.0,
    "4090": 24.0,
    "6000ada": 48.0,
    "l40s": 48.0,
    "a100": 40.0,
    "a100-80": 80.0,
    "a800": 80.0,
    "h100": 80.0,
    "h200": 141.0,
    "gh200": 96.0,
    "h800": 80.0,
    "b200": 180.0,
}

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")


def is_gpu_name(name: str) -> bool:
    return _NAME.match(name) is not None
