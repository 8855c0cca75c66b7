"""What a trace shows that a config cannot have."""

from pathlib import Path

import pytest

from decodescope.analyzer import load
from decodescope.analyzer.modelling.config import bundled_models, read_model_config
from decodescope.analyzer.modelling.trace_facts import (
    Product,
    TraceFacts,
    contradictions,
    distinct_products,
    matrix_sizes,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.modelling.products import product

LLAMA = read_model_config("llama-3.1-8b")
GPT_OSS = read_model_config("gpt-oss-20b")
HEAD = (128_256, 4096)
# Products of a layer of Llama-3.1-8B in transformers: q, k, v, o, gate, up, down.
LAYER = [
    (4096, 4096),
    (1024, 4096),
    (1024, 4096),
    (4096, 4096),
    (14336, 4096),
    (14336, 4096),
    (4096, 14336),
]


def step(tokens: int, requests: int) -> list[Product]:
    return [*(product(tokens, *size) for size in LAYER), product(requests, *HEAD)]


@pytest.mark.parametrize("name", sorted(bundled_models()))
def test_nothing_contradicts_a_trace_that_shows_nothing_or_the_model_itself(name: str) -> None:
    shape = read_model_config(name)
    assert not any(contradictions(shape, TraceFacts()))
    for tokens in (None, 4):
        facts = TraceFacts(
            layers=len(shape.layers),
            products=[product(4, *size) for size in matrix_sizes(shape)],
            tokens=tokens,
            roles={"qkv", "attention", "o", "experts" if shape.experts else "gate_up"},
            batch=4,
        )
        assert not any(contradictions(shape, facts, batch=4))


def test_the_field_and_both_values_are_named() -> None:
    facts = TraceFacts(layers=24)
    (layers,) = contradictions(LLAMA, facts)
    assert layers == (
        "num_hidden_layers of meta-llama/Llama-3.1-8B is 32, but the trace shows 24 layers"
    )
    assert not any(contradictions(GPT_OSS, facts))


@pytest.mark.parametrize("tokens", [None, 1, 32, 31])
def test_the_rows_of_a_product_contradict_nothing(tokens: int | None) -> None:
    """Engines pad a batch of 31 requests to a graph of 32, and the trace may not say the batch."""
    assert not any(contradictions(LLAMA, TraceFacts(products=step(32, 32), tokens=tokens)))
    (message,) = contradictions(GPT_OSS, TraceFacts(products=step(32, 32), tokens=tokens))
    assert "none of the matrices of openai/gpt-oss-20b" in message


@pytest.mark.parametrize(("tokens", "requests"), [(8192, 46), (15_360, 15), (888, 1), (32, 32)])
def test_a_head_on_the_last_token_of_each_request_does_not_contradict(
    tokens: int, requests: int
) -> None:
    """The head may be the only product whose shapes the trace has: the rest are custom kernels."""
    facts = TraceFacts(products=[product(requests, *HEAD)], tokens=tokens, batch=requests)
    assert not any(contradictions(LLAMA, facts))
    assert any(contradictions(GPT_OSS, facts))


def test_a_product_of_something_else_beside_the_models_does_not_contradict() -> None:
    other = product(32, 77, 99)
    assert not any(contradictions(LLAMA, TraceFacts(products=[*step(32, 32), other])))
    facts = TraceFacts(products=[product(32, *HEAD), product(32, 9, 9)])
    assert not any(contradictions(LLAMA, facts))


def test_products_whose_bytes_are_odd_fit_by_the_tokens() -> None:
    odd = [Product(one.bytes * 3, one.flops) for one in step(32, 32)]
    assert not any(contradictions(LLAMA, TraceFacts(products=odd, tokens=32)))
    assert any(contradictions(LLAMA, TraceFacts(products=odd)))


def test_the_products_of_our_own_eager_steps() -> None:
    (path,) = (one for one in bundled_recordings() if one.stem.endswith("-eager"))
    work = load(path).work
    facts = TraceFacts(layers=16, products=distinct_products(work.bytes, work.flops), tokens=1)
    assert sum(one.count for one in facts.products) >= 3 * (16 * 7 + 1)
    assert not any(contradictions(read_model_config("llama-3.2-1b"), facts))
    for other in ("llama-3.2-3b", "qwen3-0.6b", "gpt-oss-20b", "qwen3-30b-a3b"):
        assert len(list(contradictions(read_model_config(other), facts))) == 2


@pytest.mark.parametrize("name", ["mi300x_vllm_graph_capture", "mi300x_vllm_decode_graph"])
def test_the_products_of_an_engine(foreign_traces: Path, name: str) -> None:
    """gpt-oss-20b at batch 32: qkv, o and router of 24 layers, and lm_head."""
    path = foreign_traces / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"needs the foreign trace {path}")
    work = load(path).work
    facts = TraceFacts(products=distinct_products(work.bytes, work.flops))
    assert sum(one.count for one in facts.products) in (1, 72)
    assert not any(contradictions(GPT_OSS, facts))
    for other in ("llama-3.1-8b", "qwen3-30b-a3b"):
        assert any(contradictions(read_model_config(other), facts))


def test_products_of_one_of_several_devices() -> None:
    sliced = [(2048, 4096), (512, 4096), (4096, 2048), (7168, 4096), (4096, 7168), (64128, 4096)]
    facts = TraceFacts(products=[product(7, *size) for size in sliced])
    assert any(contradictions(LLAMA, facts))
    assert not any(contradictions(LLAMA, facts, tensor_parallel=2))


def test_experts_and_the_batch() -> None:
    (message,) = contradictions(LLAMA, TraceFacts(roles={"experts"}))
    assert "num_experts" in message
    (message,) = contradictions(GPT_OSS, TraceFacts(roles={"gate_up", "down"}))
    assert "num_experts of openai/gpt-oss-20b is 32" in message
    assert not any(contradictions(GPT_OSS, TraceFacts(roles={"qkv"})))
    (message,) = contradictions(LLAMA, TraceFacts(batch=32), batch=8)
    assert "--batch is 8" in message
    assert "32" in message
