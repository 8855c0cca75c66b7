"""Ranks as processes on one GPU, which open each other's memory."""

from typing import Any

import pytest
import torch

from decodescope.variants.parallel.ranks import ALONE
from tests.helpers.ranks.on_one_gpu import on_one_gpu, sums, tokens

pytestmark = pytest.mark.gpu


def test_kernels_of_two_processes_add_up_and_name_one_that_does_not_answer() -> None:
    first, last = on_one_gpu(2, sums, 200)
    assert first == (0, 2, True)
    assert last[:2] == (0, 0)


@pytest.mark.parametrize("spec", ["fused", "fused+graph", "fused+graph+fp8_e4m3"])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama-tied", {}),
        ("olmo3", {}),
        ("qwen3-moe", {"num_attention_heads": 4, "num_key_value_heads": 2}),
    ],
)
def test_two_processes_decode_as_one(family: str, changes: dict[str, Any], spec: str) -> None:
    expected = tokens(ALONE, family, spec, changes)
    for found in on_one_gpu(2, tokens, family, spec, changes):
        assert torch.equal(found, expected)
