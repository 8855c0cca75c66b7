"""What a trace shows that a config cannot have."""

from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import load
from decodescope.analyzer.modelling.config import bundled_models, read_model_config
from decodescope.analyzer.modelling.contradictions import (
    TraceFacts,
    contradictions,
    matrix_sizes,
    product_sizes,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.trace import OperatorWork

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


def test_the_products_of_our_own_eager_steps() -> None:
    (path,) = (one for one in bundled_recordings() if one.stem.endswith("-eager"))
    sizes = product_sizes(load(path).work, tokens=1)
    assert len(sizes) >= 3 * (16 * 7 + 1)
    facts = TraceFacts(layers=16, product_sizes=sizes)
    assert contradictions(read_model_config("llama-3.2-1b"), facts) == []
    for other in ("llama-3.2-3b", "qwen3-0.6b", "gpt-oss-20b", "qwen3-30b-a3b"):
        assert len(contradictions(read_model_config(other), facts)) == 2
    # 8192 x 2048 and 4096 x 4096 are one size: only the layers contradict.
    assert len(contradictions(LLAMA, facts)) == 1


@pytest.mark.parametrize("name", ["mi300x_vllm_graph_capture", "mi300x_vllm_decode_graph"])
def test_the_products_of_an_engine(foreign_traces: Path, name: str) -> None:
    """gpt-oss-20b at batch 32: qkv, o and router of 24 layers, and lm_head."""
    path = foreign_traces / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"needs the foreign trace {path}")
    facts = TraceFacts(product_sizes=product_sizes(load(path).work, tokens=32))
    assert len(facts.product_sizes) in (1, 72)
    assert contradictions(GPT_OSS, facts) == []
    for other in ("llama-3.1-8b", "qwen3-30b-a3b"):
        assert contradictions(read_model_config(other), facts) != []


def test_products_without_a_weight_for_each_token_have_no_size() -> None:
    work = OperatorWork(np.arange(3), np.full(3, 10), np.array([0, 24, 25]))
    assert product_sizes(work, 4) == [3]
    assert product_sizes(OperatorWork(*np.zeros((3, 0), dtype=np.int64)), 4) == []


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
