"""Ranks as processes, which open each other's memory: on one GPU, and on one each."""

from typing import Any

import pytest
import torch

from decodescope.variants.parallel.ranks import ALONE
from tests.helpers.ranks.on_gpus import on_gpus, sums, tokens

APART = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=APART)])
def test_kernels_of_two_processes_add_up_and_name_one_that_does_not_answer(apart: bool) -> None:
    first, last = on_gpus(2, apart, sums, 20_000 if apart else 200)
    assert first == (0, 2, True)
    assert last[:2] == (0, 0)


FAMILIES = [
    ("llama-tied", {}),
    ("olmo3", {}),
    ("qwen3-moe", {"num_attention_heads": 4, "num_key_value_heads": 2}),
]


@pytest.mark.parametrize("spec", ["fused", "fused+graph", "fused+graph+fp8_e4m3"])
@pytest.mark.parametrize(("family", "changes"), FAMILIES)
def test_two_processes_decode_as_one(family: str, changes: dict[str, Any], spec: str) -> None:
    expected = tokens(ALONE, family, spec, changes)
    for found in on_gpus(2, False, tokens, family, spec, changes):
        assert torch.equal(found, expected)


@APART
# Three processes compile.
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # from torch.compile
@pytest.mark.parametrize(
    "spec",
    [
        "eager",
        "compiled",
        "fused",
        "fused+graph",
        "fused+graph+all_reduce_torch",
        "fused+graph+all_reduce_one_shot",
        "fused+graph+all_reduce_two_shot",
        "fused+graph+int8",
    ],
)
@pytest.mark.parametrize(("family", "changes"), FAMILIES)
def test_two_gpus_decode_as_one(family: str, changes: dict[str, Any], spec: str) -> None:
    expected = tokens(ALONE, family, spec.partition("+all_reduce")[0], changes)
    for found in on_gpus(2, True, tokens, family, spec, changes):
        assert torch.equal(found, expected)
