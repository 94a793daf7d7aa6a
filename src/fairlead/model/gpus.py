"""GPU types: one lower-case name for each, other spellings of it, and the default memory of a card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from fairlead.model.errors import InputError

# Memory of the common variant, GiB (vendors' data sheets). A cluster file may override it.
MEMORY_GIB: dict[str, float] = {
    "k80": 12.0,  # one of the two chips on a card, which is what drivers show as a GPU
    "m40": 12.0,
    "m60": 8.0,  # likewise one of two
    "p4": 8.0,
    "p40": 24.0,
    "p100": 16.0,
    "1080": 8.0,
    "1080ti": 11.0,
    "titanx": 12.0,
    "titanxp": 12.0,
    "titanv": 12.0,
    "titanrtx": 24.0,
    "t4": 16.0,
    "2080": 8.0,
    "2080ti": 11.0,
    "v100": 16.0,
    "v100-32": 32.0,
    "rtx6000": 24.0,
    "a10": 24.0,
    "a30": 24.0,
    "3070": 8.0,
    "3080": 10.0,
    "3090": 24.0,
    "a4000": 16.0,
    "a5000": 24.0,
    "a6000": 48.0,
    "a40": 48.0,
    "4080": 16.0,
    "4090": 24.0,
    "6000ada": 48.0,
    "l4": 24.0,
    "l40": 48.0,
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

# Our name for what remains of a name without vendor, family, form factor and memory, where the two differ.
_OTHER_NAMES: dict[str, str] = {
    "a10g": "a10",  # Amazon's variant
    "v100s": "v100",
    "v100m16": "v100",  # Alibaba
    "v100m32": "v100-32",
    "v100l": "v100-32",  # Digital Research Alliance of Canada
    "6000": "rtx6000",
    "6000adageneration": "6000ada",
}
# The same chip with more memory is a separate type: (name, GB) -> name.
_LARGER: dict[tuple[str, int], str] = {("v100", 32): "v100-32", ("a100", 80): "a100-80"}

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_MEMORY = re.compile(r"(\d+)(?:gb|g)\Z")
_BRAND = frozenset({"nvidia", "tesla", "geforce", "quadro", "gtx", "rtx", "gpu"})
_FORM = re.compile(r"(sxm\d?|pcie?|pci|nvl|hbm\d?e?|mega|shared|graphics|device)\Z")
_SLICE = re.compile(r"mig|\d+g\.")  # a slice of a card is not the card


def is_gpu_name(name: str) -> bool:
    return _NAME.match(name) is not None


def canonical_gpu(text: str, aliases: Mapping[str, str] | None = None) -> str:
    """One name for a GPU as drivers, Slurm, Kubernetes and clouds spell it.

    `NVIDIA-A100-SXM4-80GB`, `nvidia_a100-sxm4-80gb` and `A100-80GB` are `a100-80`. `aliases`
    map spellings, in upper or lower case, to names and take precedence. From an unknown name only the brand is removed,
    so that future GPUs can be used.
    """
    for spelling, name in (aliases or {}).items():
        if spelling.lower() == text.strip().lower():
            return name.strip().lower()
    return _canonical(text)


@lru_cache(10_000)  # names also come from strangers, so that it must not grow without bound
def _canonical(text: str) -> str:
    slug = re.sub(r"[\s_/-]+", "-", text.strip().lower()).strip("-")
    if not is_gpu_name(slug):
        raise InputError(f'GPU type "{text}" is not a name; expected one such as v100 or NVIDIA-A100-SXM4-80GB')
    if slug in MEMORY_GIB or _SLICE.search(slug):
        return slug
    words = slug.replace("titan-rtx", "titanrtx").split("-")
    words = [word for word in words if word not in _BRAND and not _FORM.match(word)]
    sizes = [int(match[1]) for word in words if (match := _MEMORY.match(word))]
    bare = re.sub(r"^(rtx|gtx)(?=a?\d|titan)", "", "".join(word for word in words if not _MEMORY.match(word)))
    name = _OTHER_NAMES.get(bare, bare)
    if name not in MEMORY_GIB:
        return "-".join(words) or slug
    return _LARGER.get((name, sizes[0]), name) if sizes else name
