from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from decodescope.analyzer.modelling.step_work import touched_experts
from decodescope.variants.model.quantized_weights import Quantization
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets
from decodescope.variants.model.workload_costs import (
    KvBytes,
    StepFlops,
    expected_experts,
    layer_windows,
    weight_bytes_read,
)
from tests.helpers import families


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("llama-3.2-1b", 2.4716), ("llama-3.1-8b", 15.0098)]
)
def test_known_models(name: str, gigabytes: float) -> None:
    model = build_random(presets()[name].config, "meta", torch.bfloat16)
    assert weight_bytes_read(model, 1) == pytest.approx(gigabytes * 1e9, abs=0.1e6)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_weights_by_hand(build_small: Callable[..., Any], architecture: str, tied: bool) -> None:
    model = build_small(architecture, tie_word_embeddings=tied)
    expected = 0
    for name, parameter in model.named_parameters():
        if name == "model.embed_tokens.weight" and not tied:
            continue
        expected += parameter.numel() * 4
    row = 64 * 4
    assert weight_bytes_read(model, 1) == expected + row
    assert weight_bytes_read(model, 5) == expected + 5 * row


@pytest.mark.parametrize(
    # Of 7 experts a sequence leaves out 4.
    ("batch", "read"),
    [(1, Fraction(3)), (2, 7 - Fraction(16, 7)), (3, 7 - Fraction(64, 49))],
)
def test_of_experts_those_that_are_chosen_in_expectation_are_read(
    batch: int, read: Fraction
) -> None:
    model = families.build("qwen3-moe")
    narrow = families.build("qwen3-moe")
    quantize_model("m", narrow, Quantization("fp8_e4m3", head=False))
    # Two layers of seven experts, and of attention: a byte for each element, four for each row.
    experts = 2 * read * (40 * (96 + 4) + 96 * (20 + 4))
    attention = 2 * (160 * (96 + 4) + 96 * (96 + 4))
    others = 4 * (5 * 96 + 4 * 32 + 2 * 7 * 96 + (101 + batch) * 96)
    assert weight_bytes_read(narrow, batch) == int(experts + attention + others)
    assert StepFlops(narrow, batch).at(9) == StepFlops(model, batch).at(9)
    expected = Fraction(batch * 96 * 4)
    for name, parameter in model.named_parameters():
        if "experts" in name:
            expected += read * parameter[0].nbytes
        elif "embed_tokens" not in name:
            expected += parameter.nbytes
    assert weight_bytes_read(model, batch) == int(expected)
    assert expected_experts(7, 3, batch) == read
    assert float(read) == pytest.approx(touched_experts(7, 3, batch))


def test_of_every_embedding_table_a_row_is_read() -> None:
    model = families.build("gemma4-inputs")
    expected = 3 * 4 * (99 + 4 * 24)
    for name, parameter in model.named_parameters():
        # The other table is the head's too.
        if name != "model.embed_tokens_per_layer.weight":
            expected += parameter.nbytes
    assert weight_bytes_read(model, 3) == expected


def test_kv_bytes_by_hand() -> None:
    config = AutoConfig.for_model(**presets()["llama-3.2-1b"].config)
    kv = KvBytes(config, batch=3, element_bytes=2)
    assert kv.at(0) == 0
    assert kv.at(1000) == 2 * 3 * 16 * 8 * 64 * 2 * 1000


def test_a_sliding_window_bounds_what_is_read() -> None:
    config = AutoConfig.for_model(**presets()["mistral-7b"].config)
    assert layer_windows(config) == (4096,) * 32
    kv = KvBytes(config, batch=1, element_bytes=2)
    assert kv.at(4000) == 2 * 32 * 8 * 128 * 2 * 4000
    # The window counts the new token, whose K and V are not read from the cache.
    assert kv.at(4095) == kv.at(4096) == kv.at(20_000)


def test_only_the_sliding_layers_of_a_mixed_model_are_bounded() -> None:
    config = AutoConfig.for_model(
        "qwen3",
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        use_sliding_window=True,
        sliding_window=9,
        max_window_layers=3,
    )
    assert layer_windows(config) == (None, None, None, 9)
    assert KvBytes(config, 1, 4).at(100) == 2 * 2 * 16 * 4 * (3 * 100 + 8)
