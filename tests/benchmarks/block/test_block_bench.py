from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from transformers import DynamicCache

from benchmarks.block import block_bench
from benchmarks.block.attention_block import (
    BlockInputs,
    EagerBlock,
    FixedCache,
    FusedBlock,
    GrowingCache,
    Subject,
    random_inputs,
    reference_output,
)
from benchmarks.block.block_bench import Way, cosine, measure_block, one_layer_model, time_ways
from benchmarks.block.report import BlockBenchmark
from benchmarks.block.result_table import block_table
from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.source import ModelSource, presets
from decodescope.variants.model.workload import DType
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.tiles import interpreter_tiles
from tests.helpers.fake_clock import FakeClock
from tests.helpers.families import build

LENGTH = 17
DTYPES: dict[DType, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16}


def subject_of(
    family: str, dtype: torch.dtype = torch.float32, batch: int = 1, device: str = "cpu"
) -> Subject:
    model = build(family, dtype, device=device)
    parts = fused_model(model)
    tiles = interpreter_tiles(step_shapes(parts, batch, LENGTH + 1))
    return Subject(model, parts, random_inputs(parts, batch, LENGTH), tiles, pdl=False)


def whole_layer(subject: Subject) -> torch.Tensor:
    """The decoder layer's own forward, its MLP replaced by nothing."""
    inputs, decoder = subject.inputs, subject.model.model
    layer = decoder.layers[0]
    layer.mlp = ZeroMlp()
    cache = DynamicCache()
    cache.update(inputs.keys, inputs.values, 0)
    position = torch.tensor([[inputs.length]], device=inputs.x.device)
    out: torch.Tensor = layer(
        inputs.x[:, None],
        position_ids=position,
        past_key_values=cache,
        position_embeddings=decoder.rotary_emb(inputs.x, position),
    )
    return out[:, 0]


class ZeroMlp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama-biased"])
def test_the_eager_block_is_the_layer_up_to_its_mlp(family: str) -> None:
    subject = subject_of(family, batch=2)
    block = EagerBlock(subject.model, subject.model.model.layers[0], subject.inputs)
    x = subject.inputs.x[:, None]
    growing = GrowingCache(subject.inputs)
    first = block(x, growing.cache)[:, 0]
    growing.rewind()
    again = block(x, growing.cache)[:, 0]
    fixed = block(x, FixedCache(subject.inputs))[:, 0]
    reference = reference_output(subject.model, subject.inputs)
    expected = whole_layer(subject)
    for out in (first, again, fixed, reference):
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "batch"), [("fp32", 2), ("fp16", 1)])
def test_the_fused_block_agrees_with_float32(dtype: DType, batch: int, device: str) -> None:
    subject = subject_of("qwen2", DTYPES[dtype], batch, device)
    clock = FakeClock(8000.0, 4000.0, 2000.0, 1000.0)
    figures = measure_block(subject, dtype, clock, rounds=1, calls=2, blocks_per_graph=2)
    assert figures.error is None
    assert figures.fused_cosine >= figures.required_cosine
    assert figures.eager_cosine >= figures.required_cosine
    assert (figures.cache_length, clock.captured) == (LENGTH, 2)
    times = figures.times
    assert times is not None
    # A graphed call holds two blocks.
    assert times.eager_ungraphed_ns.median == 8000
    assert times.eager_graphed_ns.median == 2000
    assert times.fused_ungraphed_ns.median == 2000
    assert times.fused_graphed_ns.median == 500
    assert times.eager_over_fused_ungraphed.median == 4
    assert times.eager_ungraphed_over_fused_graphed.median == 16
    assert times.eager_over_fused_graphed.median == 4


class WrongFusedBlock(FusedBlock):
    def launch(self, follows: bool) -> None:
        self.x.copy_(self.x.flip(-1))


def test_a_wrong_block_gets_an_error_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_bench, "FusedBlock", WrongFusedBlock)
    figures = measure_block(subject_of("llama2"), "fp32", FakeClock(1.0), 1, 1, 1)
    assert figures.error is not None
    assert "cosine" in figures.error
    assert figures.times is None


class OtherGraphs(FakeClock):
    """A graph that leaves one launch out."""

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


def test_a_graph_with_other_results_is_detected(device: str) -> None:
    figures = measure_block(subject_of("llama2", device=device), "fp32", OtherGraphs(1.0), 1, 1, 1)
    assert figures.error is not None
    assert "graph" in figures.error
    assert figures.times is None


def test_ratios_are_taken_within_a_round() -> None:
    order: list[str] = []

    def way(name: str, blocks: int) -> Way:
        return Way(lambda: order.append(name), blocks, lambda: order.append(f"prepare {name}"))

    ways = {"eager": way("a", 1), "eager+graph": way("b", 4)}
    ways |= {"fused": way("c", 1), "fused+graph": way("d", 4)}
    clock = FakeClock(80, 160, 20, 40, 240, 160, 30, 80, 10, 160, 10, 40)
    times = time_ways(ways, clock, rounds=3, calls=8)
    one_round = ["prepare a", "a", "prepare b", "b", "prepare c", "c", "prepare d", "d"]
    assert order == one_round * 3
    assert times.eager_ungraphed_ns.rounds == (80, 240, 10)
    assert times.fused_graphed_ns.rounds == (10, 20, 10)
    ratio = times.eager_over_fused_ungraphed
    assert (ratio.rounds, ratio.median, ratio.min, ratio.max) == ((4, 8, 1), 4, 1, 8)
    assert times.eager_over_fused_graphed.rounds == (4, 2, 4)


def test_a_window_shorter_than_the_cache_is_refused() -> None:
    with pytest.raises(ModelError, match="sliding window of 7"):
        measure_block(subject_of("mistral"), "fp32", FakeClock(1.0))


def test_cosine_is_the_smallest_of_all_sequences() -> None:
    reference = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    out = torch.tensor([[2.0, 0.0], [3.0, 4.0]])
    assert cosine(out, reference) == pytest.approx(0.6)


def test_random_weights_exercise_every_part_of_the_block(device: str) -> None:
    preset = presets()["qwen2.5-0.5b"]
    sizes = {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 64,
        "intermediate_size": 96,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    small = replace(preset, config=preset.config | sizes)
    source = ModelSource("small@random", "random", preset=small)
    model = one_layer_model(source, device, "fp32", batch=1)
    layer = model.model.layers[0]
    assert len(model.model.layers) == 1
    assert layer.self_attn.q_proj.bias.abs().min() > 0
    assert layer.input_layernorm.weight.std() > 0.1
    inputs = random_inputs(fused_model(model), 1, LENGTH)
    attended = reference_output(model, inputs) - inputs.x
    # The block changes its input by about as much as there is of it.
    assert attended.norm() > 0.2 * inputs.x.norm()
    last_seen = BlockInputs(inputs.x, inputs.keys[:, :, 1:], inputs.values[:, :, 1:])
    assert cosine(reference_output(model, last_seen) - inputs.x, attended) < 0.999


def test_the_benchmark_survives_json_and_fills_the_table(device: str) -> None:
    good = measure_block(
        subject_of("llama2", device=device),
        "fp32",
        FakeClock(9000.0, 3000.0),
        2,
        1,
        blocks_per_graph=1,
    )
    bad = msgspec.structs.replace(good, cache_length=99, error="is wrong", times=None)
    result = BlockBenchmark(
        schema_version=1,
        model="small@random",
        batch=1,
        rounds=2,
        calls=1,
        blocks_per_graph=1,
        blocks=(good, bad),
        environment={"gpu": "a GPU"},
    )
    assert msgspec.json.decode(msgspec.json.encode(result), type=BlockBenchmark) == result
    assert result.errors == ("fp32 at 99 positions: is wrong",)
    console: Any = Console(width=250)
    with console.capture() as captured:
        console.print(block_table(result))
    text = captured.get()
    assert "3.00" in text
    assert "check failed" in text
    assert "fp32 at 99 positions: is wrong" in text


@pytest.mark.gpu
def test_on_a_gpu_the_fused_block_is_right_in_both_dtypes() -> None:
    result = block_bench.run_block_bench(
        "qwen2.5-0.5b@random", 1, (64, 512), block_bench.DTYPES, lambda stage: None
    )
    assert result.errors == ()
    assert [(block.dtype, block.cache_length) for block in result.blocks] == [
        ("bf16", 64),
        ("bf16", 512),
        ("fp16", 64),
        ("fp16", 512),
    ]
    for block in result.blocks:
        assert block.times is not None
        assert block.times.fused_graphed_ns.min > 0
