import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.harness import cold_graphs
from benchmarks.harness.cold_graphs import MIN_LAUNCHES, copies_needed, launches_per_replay
from benchmarks.harness.errors import relative_error
from benchmarks.kernels import kernel_bench
from benchmarks.kernels.kernel_bench import (
    REPLAYS,
    ROUNDS,
    Conditions,
    measure_case,
    measure_kernels,
)
from benchmarks.kernels.kernel_cases import Copy, KernelCase, _operations, kernel_cases
from benchmarks.kernels.operands import Operands, operation_error
from benchmarks.kernels.report import KernelBenchmark, KernelFigures, KernelUse
from benchmarks.kernels.result_table import kernel_table
from benchmarks.kernels.shape_model import shape_model
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.linear import Linear
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.spec import FUSIONS, VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.tiles import default_tiles, interpreter_tiles
from tests.helpers.fake_clock import FakeClock
from tests.helpers.families import FAMILIES, MIXTURES

FUSED = VariantSpec("fused")
CONTEXT = 11
TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def meta_parts(family: str, dtype: torch.dtype, spec: VariantSpec = FUSED) -> FusedModel:
    with torch.device("meta"):
        config = AutoConfig.for_model(**(FAMILIES | MIXTURES)[family])
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if (quantization := quantization_of(spec)) is not None:
        quantize_model(family, model, quantization)
    return fused_model(model)


def operands_of(
    family: str, dtype: torch.dtype, batch: int, device: str, spec: VariantSpec = FUSED
) -> Operands:
    parts = meta_parts(family, dtype, spec)
    shapes = step_shapes(parts, batch, CONTEXT + 1)
    tiles = interpreter_tiles(shapes) if device == "cpu" else default_tiles(shapes, 132)
    splitting = {"attention": Tile(1, 16, splits=2), "o": replace(tiles["o"], splits=2)}
    return Operands(parts, batch, CONTEXT, {**tiles, **splitting}, device, spec)


@pytest.mark.parametrize(
    ("family", "dtype", "batch", "variant"),
    [
        ("llama-biased", torch.float32, 1, "fused"),
        ("qwen3", torch.float32, 3, "fused"),
        ("mistral", torch.float16, 1, "fused"),
        ("llama-head-80", torch.bfloat16, 1, "fused"),
        ("llama-biased", torch.float32, 1, "fused+fp8_e4m3"),
        ("llama-tied", torch.float32, 3, "fused+int8+embedding8"),
        ("mistral", torch.float16, 1, "fused+fp8_e5m2_cast+head16"),
        ("qwen3", torch.float16, 1, "fused+kv_fp8_e4m3"),
        ("mistral", torch.float16, 3, "fused+kv_fp8_e5m2"),
        ("qwen3", torch.float16, 1, "fused+w8a8"),
        ("llama-biased", torch.float32, 3, "fused+w8a8+head16"),
        ("qwen3", torch.bfloat16, 3, "fused+fp8_e4m3"),
        ("qwen3", torch.bfloat16, 1, "fused+int4"),
        ("qwen3", torch.float32, 3, "fused+int4"),
        ("qwen3-moe", torch.float32, 1, "fused"),
        ("qwen3-moe", torch.float32, 3, "fused+mxfp4"),
        ("gpt-oss", torch.float32, 1, "fused"),
    ],
)
def test_every_kernel_agrees_with_its_reference_on_every_copy(
    family: str, dtype: torch.dtype, batch: int, variant: str, device: str
) -> None:
    spec = VariantSpec.parse(variant)
    for case in kernel_cases(operands_of(family, dtype, batch, device, spec)):
        first, second = case.copies(2)
        second.launch(False)
        first.launch(False)
        for copy in (second, first):
            assert copy.relative_error(False) < TOLERANCES[dtype], case.use.operation


def test_each_launch_that_quantises_is_a_case(device: str) -> None:
    spec = VariantSpec.parse("fused+w8a8")
    operands = operands_of("llama-biased", torch.float16, 3, device, spec)
    layers = len(operands.parts.layers)
    launches = {case.use.operation: case.use.launches_per_step for case in kernel_cases(operands)}
    found = {name: count for name, count in launches.items() if name.startswith("quantize_rows")}
    assert found == {
        **{f"quantize_rows {name}": layers for name in ("qkv", "o", "gate_up", "down")},
        "quantize_rows head": 1,
    }
    assert launches["head"] == 1


@pytest.mark.parametrize(("batch", "variant"), [(1, "fused"), (3, "fused"), (1, "fused+w8a8")])
def test_each_kernel_that_some_step_launches_is_a_case_once(
    batch: int, variant: str, device: str
) -> None:
    spec = VariantSpec.parse(variant)
    operands = operands_of("llama-biased", torch.float16, batch, device, spec)
    cases = [case.use for case in kernel_cases(operands)]
    launched = {case.kernel for case in cases if case.launches_per_step} | {"embed"}
    others = [case.kernel for case in cases if case.kernel not in launched]
    found: set[str] = set()
    for left_out in (FUSIONS, *((part,) for part in FUSIONS)):
        without = replace(spec, without=frozenset(left_out))
        found |= {
            one.kernel
            for one in _operations(operands, without, CONTEXT)
            if "tile" not in one.arguments
        }
    assert sorted(others) == sorted(found - launched)
    assert len({case.operation for case in cases}) == len(cases)


def test_plain_products_agree_with_their_reference_too(device: str) -> None:
    """No case measures them: a step launches them only if a fusion is left out."""
    operands = operands_of("llama-biased", torch.float32, 1, device)
    like = operands.parts.layers[0]
    x, out = (
        torch.empty(1, like.o.columns, device="meta"),
        torch.empty(1, like.o.rows, device="meta"),
    )
    for norm in (None, replace(like.input_norm, weight=torch.empty(like.o.columns, device="meta"))):
        linear = operands.like(Linear(x, like.o, out, operands.tiles["gate_up"], norm), 0, {})
        assert operation_error(linear, 0, pdl=False) < TOLERANCES[torch.float32]
        norm_bytes = 0 if norm is None else norm.weight.nbytes
        assert linear.bytes_moved(0) == like.o.bytes_read + x.nbytes + out.nbytes + norm_bytes


NORMS = ("rms_norm qkv", "rms_norm gate_up", "rms_norm head")


def test_bytes_are_those_of_the_tensors_a_launch_must_touch(device: str) -> None:
    batch, hidden, heads, kv_heads, dim, inner, vocab = 3, 96, 3, 1, 32, 136, 101
    rows = (heads + 2 * kv_heads) * dim
    elements = {
        "qkv": rows * hidden + rows + batch * hidden + batch * rows,
        "attention": 2 * batch * kv_heads * (CONTEXT + 1) * dim + 2 * batch * heads * dim,
        "o": hidden * heads * dim + hidden + batch * (heads * dim + 2 * hidden),
        "gate_up": 2 * inner * (hidden + 1) + batch * hidden + batch * inner,
        "down": hidden * inner + hidden + batch * (inner + 2 * hidden),
        "head": vocab * hidden + batch * hidden,
        "embedding": 2 * batch * hidden,
        **dict.fromkeys(NORMS, 2 * batch * hidden + hidden),
        "residual+norm": 4 * batch * hidden + hidden,
        "rope": 2 * batch * (heads + kv_heads) * dim,
        "kv_write": 4 * batch * kv_heads * dim,
        "swiglu": 3 * batch * inner,
    }
    others = {"head": 8 * batch, "embedding": 8 * batch, "rope": 4 * dim}
    expected = {name: 2 * count + others.get(name, 0) for name, count in elements.items()}
    operands = operands_of("llama-biased", torch.float16, batch, device)
    assert {case.use.operation: case.use.bytes_moved for case in kernel_cases(operands)} == expected


def test_bytes_of_narrow_weights_are_those_of_elements_and_scales(device: str) -> None:
    spec = VariantSpec.parse("fused+int8")
    narrow = operands_of("llama-biased", torch.float16, 1, device, spec)
    wide = operands_of("llama-biased", torch.float16, 1, device)
    layer = wide.parts.layers[0]
    matrices = {
        "qkv": layer.qkv,
        "o": layer.o,
        "gate_up": layer.mlp.gate_up,
        "down": layer.mlp.down,
        "head": wide.parts.head,
    }
    saved = {name: one.rows * (one.columns - 4) for name, one in matrices.items()}
    for case, other in zip(kernel_cases(narrow), kernel_cases(wide), strict=True):
        name = case.use.operation
        assert other.use.operation == name
        assert other.use.bytes_moved - case.use.bytes_moved == saved.get(name, 0)


def test_a_window_bounds_the_bytes_of_attention(device: str) -> None:
    cases = kernel_cases(operands_of("mistral", torch.float32, 1, device))
    attention = next(case for case in cases if case.use.operation == "attention")
    assert attention.use.bytes_moved == 4 * (2 * 1 * 7 * 32 + 2 * 3 * 32)


def test_copies_exceed_the_cache_four_times_unless_too_many() -> None:
    for bytes_moved in (1_000_000, 7_777_777, 500_000_000):
        count, cold = copies_needed(bytes_moved, l2_bytes=60_000_000)
        assert cold
        assert count * bytes_moved > 4 * 60_000_000 >= (count - 1) * bytes_moved
    assert copies_needed(8192, l2_bytes=60_000_000) == (MIN_LAUNCHES, False)


@pytest.mark.parametrize("copies", [1, 3, 127, 128, 129, 1000])
def test_a_graph_uses_every_copy_equally_often(copies: int) -> None:
    launches = launches_per_replay(copies)
    assert launches >= MIN_LAUNCHES
    assert launches % copies == 0
    assert launches < MIN_LAUNCHES + copies


def scripted_case(errors: dict[bool, float], launched: list[tuple[int, bool]]) -> KernelCase:
    def launcher(index: int) -> Callable[[bool], None]:
        return lambda pdl: launched.append((index, pdl))

    def copies(count: int) -> list[Copy]:
        return [Copy(launcher(index), errors.__getitem__) for index in range(count)]

    return KernelCase(KernelUse("o", "linear_residual", "2 x 2", 4, 1_000_000, None), copies)


def conditions(**changes: Any) -> Conditions:
    given = Conditions(1_000_000, ReadPeak(4e12, "2026-01-01"), tolerance=1e-3, pdl=True)
    return replace(given, **changes)


def test_times_are_divided_by_the_launches_of_a_replay() -> None:
    launched: list[tuple[int, bool]] = []
    case = scripted_case({False: 1e-4, True: 2e-4}, launched)
    launches = launches_per_replay(5)
    # In each round, the replays of one launch after the other, then those of overlapping launches.
    readings = ROUNDS * REPLAYS
    script = []
    for first in range(0, readings, REPLAYS):
        script += [launches * (1000.0 + first + index) for index in range(REPLAYS)]
        script += [launches * 500.0] * REPLAYS
    clock = FakeClock(*script)
    figures = measure_case(case, conditions(), clock)
    assert (figures.copies, figures.cold, figures.launches) == (5, True, launches)
    assert (figures.relative_error, figures.error) == (2e-4, None)
    assert figures.serial is not None
    assert figures.serial.median_ns == pytest.approx(1000 + (readings - 1) / 2)
    assert figures.serial.p10_ns == pytest.approx(1000 + (readings - 1) / 10)
    assert figures.serial.p90_ns == pytest.approx(1000 + 9 * (readings - 1) / 10)
    assert figures.serial.bytes_per_s == pytest.approx(1e6 / (figures.serial.median_ns * 1e-9))
    assert figures.serial.share_of_peak == pytest.approx(figures.serial.bytes_per_s / 4e12)
    assert figures.overlapped is not None
    assert figures.overlapped.median_ns == pytest.approx(500)
    one_round = launched[: 2 * launches]
    assert launched == one_round * ROUNDS
    serial, overlapped = one_round[:launches], one_round[launches:]
    assert {pdl for _, pdl in serial} == {False}
    assert [pdl for _, pdl in overlapped] == [False] + [True] * (launches - 1)
    assert [index for index, _ in serial[:7]] == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize("error", [2e-3, math.inf])
def test_a_wrong_kernel_gets_an_error_and_no_time(error: float) -> None:
    launched: list[tuple[int, bool]] = []
    clock = FakeClock(1.0)
    figures = measure_case(scripted_case({False: 1e-4, True: error}, launched), conditions(), clock)
    assert figures.error is not None
    assert "float64" in figures.error
    assert (figures.serial, figures.overlapped, clock.captured) == (None, None, 0)
    assert launched == []
    assert b"NaN" not in msgspec.json.encode(figures)


def test_without_overlap_and_peak_their_figures_are_null() -> None:
    case = scripted_case({False: 0.0}, [])
    figures = measure_case(case, conditions(pdl=False, peak=None), FakeClock(1.0))
    assert figures.overlapped is None
    assert figures.serial is not None
    assert figures.serial.share_of_peak is None


def test_a_missing_result_is_an_infinite_error() -> None:
    reference = torch.ones(3)
    assert relative_error(torch.tensor([1.0, math.nan, 1.0]), reference) == math.inf
    assert relative_error(torch.tensor([1.0, 1.0, 2.0]), reference) == pytest.approx(3**-0.5)


def benchmark_of(kernels: tuple[KernelFigures, ...]) -> KernelBenchmark:
    return KernelBenchmark(
        schema_version=1,
        model="small@random",
        dtype="fp32",
        batch=1,
        context=CONTEXT,
        replays=REPLAYS,
        l2_bytes=1000,
        measured_peak_bytes_per_s=4e12,
        measured_peak_at="2026-01-01",
        tile_sources={"qkv": "default"},
        kernels=kernels,
        environment={"gpu": "a GPU", "torch": None},
    )


def text_of(renderable: Any) -> str:
    console = Console(width=250)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_a_whole_benchmark_survives_json_and_fills_the_table(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each launch takes the interpreter milliseconds.
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    operands = operands_of("llama2", torch.float32, 1, device)
    said: list[str] = []
    figures = measure_kernels(
        operands, conditions(l2_bytes=1000, pdl=False), FakeClock(2000.0), said.append
    )
    result = benchmark_of(figures)
    assert result.errors == ()
    assert len(said) == len(figures) == len(list(kernel_cases(operands)))
    assert msgspec.json.decode(msgspec.json.encode(result), type=KernelBenchmark) == result
    per_step = {figure.operation: figure.launches_per_step for figure in figures}
    assert sum(per_step.values()) == 5 * 2 + 2
    text = text_of(kernel_table(result))
    assert all(figure.kernel in text for figure in figures)
    assert "4.00 TB" in text or "4,000 GB" in text
    broken = msgspec.structs.replace(figures[0], error="is wrong", serial=None)
    failed = benchmark_of((broken, *figures[1:]))
    assert failed.errors == ("qkv: is wrong",)
    assert "check failed" in text_of(kernel_table(failed))


def test_a_presets_shapes_need_no_weights() -> None:
    parts = shape_model(resolve_model("llama-3.1-8b@random"), 1, torch.bfloat16, "cpu", FUSED)
    assert parts.embedding.data.is_meta
    assert (parts.hidden, parts.intermediate, parts.vocab) == (4096, 14336, 128256)
    layer = parts.layers[0]
    assert (parts.heads, layer.kv_heads, layer.head_dim, len(parts.layers)) == (32, 8, 128, 32)
    tiny = shape_model(resolve_model("tiny"), 1, torch.float32, "cpu", FUSED)
    assert (tiny.hidden, len(tiny.layers)) == (256, 4)


@pytest.mark.gpu
def test_on_a_gpu_every_kernel_is_right_and_below_the_peak() -> None:
    from decodescope.variants.model.workload import DecodeWorkload

    workload = DecodeWorkload(batch=1, context=1024, new_tokens=1, dtype="bf16")
    result = kernel_bench.run_kernel_bench(
        "llama-3.2-1b@random", workload, FUSED, lambda stage: None
    )
    assert result.errors == ()
    peak = result.measured_peak_bytes_per_s
    assert peak is not None
    for kernel in result.kernels:
        assert kernel.serial is not None
        assert kernel.serial.p10_ns > 0
        if kernel.cold:
            assert kernel.serial.bytes_per_s < 1.2 * peak, kernel.operation
