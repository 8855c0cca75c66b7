"""What a trace shows that a config cannot have."""

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.contradictions import (
    TraceFacts,
    contradictions,
    matrix_sizes,
)
from decodescope.analyzer.modelling.names import bundled_models

LLAMA = read_model_config("llama-3.1-8b")
GPT_OSS = read_model_config("gpt-oss-20b")
# Products of a layer of Llama-3.1-8B in transformers: q, k, v, o, gate, up, down; and lm_head.
PRODUCTS = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096),
            (4096, 14336), (128256, 4096)]  # fmt: skip


@pytest.mark.parametrize("name", sorted(bundled_models()))
def test_nothing_contradicts_a_trace_that_shows_nothing_or_the_model_itself(name: str) -> None:
    shape = read_model_config(name)
    assert contradictions(shape, TraceFacts()) == []
    products = list(matrix_sizes(shape))
    facts = TraceFacts(
        layers=len(shape.layers),
        layer_variants=len(set(shape.kinds())),
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        products=products,
        product_sizes=[rows * columns for rows, columns in products],
        roles={"qkv", "attention", "o", "experts" if shape.experts else "gate_up"},
        batch=4,
    )
    assert contradictions(shape, facts, batch=4) == []


def test_the_field_and_both_values_are_named() -> None:
    facts = TraceFacts(layers=24, hidden=2880, vocabulary=201_088)
    layers, hidden, vocabulary = contradictions(LLAMA, facts)
    assert layers == (
        "num_hidden_layers of meta-llama/Llama-3.1-8B is 32, but the trace shows 24 layers"
    )
    assert "hidden_size" in hidden
    assert "4,096" in hidden
    assert "2,880" in hidden
    assert "vocab_size" in vocabulary
    assert contradictions(GPT_OSS, facts) == []


def test_products_in_either_order_and_of_other_models() -> None:
    assert contradictions(LLAMA, TraceFacts(products=PRODUCTS)) == []
    transposed = [(columns, rows) for rows, columns in PRODUCTS]
    assert contradictions(LLAMA, TraceFacts(products=transposed)) == []
    (message,) = contradictions(GPT_OSS, TraceFacts(products=PRODUCTS))
    assert "128,256 x 4,096" in message
    # A product of something else beside the model's does not contradict.
    assert contradictions(LLAMA, TraceFacts(products=[*PRODUCTS, (77, 99)])) == []


def test_sizes_of_products_whose_shape_is_not_known() -> None:
    sizes = [rows * columns for rows, columns in PRODUCTS]
    assert contradictions(LLAMA, TraceFacts(product_sizes=sizes)) == []
    (message,) = contradictions(read_model_config("llama-3.2-1b"), TraceFacts(product_sizes=sizes))
    assert f"{128256 * 4096:,} weights" in message


def test_products_of_one_of_several_devices() -> None:
    sliced = [(2048, 4096), (512, 4096), (4096, 2048), (7168, 4096), (4096, 7168), (64128, 4096)]
    assert contradictions(LLAMA, TraceFacts(products=sliced)) != []
    assert contradictions(LLAMA, TraceFacts(products=sliced), tensor_parallel=2) == []


def test_experts_kinds_of_layers_and_the_batch() -> None:
    (message,) = contradictions(LLAMA, TraceFacts(roles={"experts"}))
    assert "num_experts" in message
    (message,) = contradictions(GPT_OSS, TraceFacts(roles={"gate_up", "down"}))
    assert "num_experts of openai/gpt-oss-20b is 32" in message
    assert contradictions(GPT_OSS, TraceFacts(roles={"qkv"})) == []
    (message,) = contradictions(LLAMA, TraceFacts(layer_variants=2))
    assert "layer_types" in message
    (message,) = contradictions(LLAMA, TraceFacts(batch=32), batch=8)
    assert "--batch is 8" in message
    assert "32" in message
