from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.model.gpus import MEMORY_GIB, canonical_gpu, is_gpu_name

SPELLINGS = {
    "k80": ["Tesla K80", "nvidia-tesla-k80", "K80"],
    "m60": ["Tesla M60"],
    "p100": ["Tesla P100-PCIE-16GB", "Tesla-P100-SXM2-16GB", "nvidia-tesla-p100"],
    "1080ti": ["GeForce GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti", "gtx1080ti", "GTX-1080Ti"],
    "titanxp": ["TITAN Xp", "NVIDIA TITAN Xp", "titan_xp"],
    "titanx": ["GeForce GTX TITAN X"],
    "t4": ["Tesla T4", "NVIDIA-T4", "nvidia-tesla-t4"],
    "2080ti": ["GeForce RTX 2080 Ti", "rtx2080ti"],
    "v100": ["Tesla V100-SXM2-16GB", "nvidia-tesla-v100", "V100M16", "tesla_v100-pcie-16gb"],
    "v100-32": ["Tesla V100-SXM2-32GB", "Tesla-V100-PCIE-32GB", "Tesla V100S-PCIE-32GB", "V100M32", "V100-32GB"],
    "rtx6000": ["Quadro RTX 6000", "rtx_6000"],
    "a10": ["NVIDIA A10", "NVIDIA A10G", "a10g"],
    "3070": ["NVIDIA GeForce RTX 3070"],
    "3080": ["rtx3080", "GeForce RTX 3080"],
    "3090": ["NVIDIA-GeForce-RTX-3090", "nvidia_geforce_rtx_3090", "rtx_3090"],
    "a6000": ["NVIDIA RTX A6000", "rtxa6000"],
    "6000ada": ["NVIDIA RTX 6000 Ada Generation", "RTX6000-Ada"],
    "4090": ["NVIDIA GeForce RTX 4090", "RTX4090"],
    "l40s": ["NVIDIA L40S", "NVIDIA-L40S"],
    "a100": ["NVIDIA A100-SXM4-40GB", "A100-PCIE-40GB", "nvidia-tesla-a100"],
    "a100-80": [
        "NVIDIA-A100-SXM4-80GB",
        "nvidia_a100-sxm4-80gb",
        "NVIDIA A100 80GB PCIe",
        "A100-80GB",
        "nvidia-a100-80gb",
    ],
    "h100": ["NVIDIA H100 80GB HBM3", "NVIDIA-H100-PCIe", "nvidia-h100-80gb", "nvidia-h100-mega-80gb"],
    "a100-3g.20gb": ["a100_3g.20gb"],
    "mi300x": ["mi300x"],
}


@pytest.mark.parametrize(("name", "spelling"), [(name, text) for name, texts in SPELLINGS.items() for text in texts])
def test_every_spelling_of_a_gpu_gets_its_one_name(name: str, spelling: str) -> None:
    assert canonical_gpu(spelling) == name


def test_our_own_names_and_type_labels_stay_as_they_are() -> None:
    for name in (*MEMORY_GIB, "v100-32gib", "a100-80gib"):
        assert canonical_gpu(name) == name


def test_a_users_aliases_go_first() -> None:
    assert canonical_gpu("MISC", {"misc": "k80"}) == "k80"
    assert canonical_gpu("V100", {"V100": "a100"}) == "a100"


@given(st.text(max_size=20))
def test_whatever_is_accepted_is_a_name_and_its_own_canonical_form(text: str) -> None:
    try:
        name = canonical_gpu(text)
    except InputError:
        return
    assert is_gpu_name(name)
    assert canonical_gpu(name) == name
