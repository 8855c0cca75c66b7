"""A step with E4M3 activations against transformers with the same quantisation before each product.

A value that lies at the border of two codes may become one here and the other there, which the
bounds of other steps leave no room for. It happens to 1 in 10^6 values of float32 sums, and by the
order of the sums, which depends on the processor: one token of several has to agree. FP8 tensor
cores, whose sums have about 14 bits, may move a value of a token to another code; what follows may
then be as far off as two quantisations are from each other.
"""

import pytest
import torch

from benchmarks.quality.formats import quantized_activations
from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.schema.report import RangeReport
from decodescope.kernels.ops.quantize_rows import QuantizeRows
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused.operations import step_operations
from tests.helpers import families
from tests.helpers.comparison_reports import range_of
from tests.helpers.fused_steps import (
    assert_logits_agree,
    both,
    fused,
    ids_of,
    load_family,
    logits_agree,
    prompt_of,
)

CONTEXT = families.ORIGINAL_MAX - 2
# Of most tokens' logits from FP8 tensor cores; without the quantisation of x they are at least
# twice as far.
TENSOR_CORE_ERROR = 1e-2
SEEDS = 3


def decoded_logits(
    loaded: LoadedModel, workload: DecodeWorkload, spec: str, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a step, and those of transformers with the same quantisation of x."""
    step, eager = both(loaded, workload, spec)
    ids = ids_of(loaded, workload.batch, seed)
    with quantized_activations(loaded.model):
        expected = eager.forced_step(ids)
    return step.forced_step(ids), expected


def assert_near(loaded: LoadedModel, workload: DecodeWorkload, spec: str) -> None:
    """As near to the reference as sums of FP8 tensor cores are."""
    logits, expected = decoded_logits(loaded, workload, spec, 0)
    _, exact = both(loaded, workload, spec)
    exact_logits = exact.forced_step(ids_of(loaded, workload.batch, 0))
    quantisation = (exact_logits - expected).norm(dim=-1)
    error = (logits - expected).norm(dim=-1)
    assert (error / expected.norm(dim=-1)).median() < TENSOR_CORE_ERROR
    assert (error < 2 * quantisation).all()


def assert_agrees(family: str, spec: str, batch: int, device: str) -> None:
    loaded, workload = load_family(family, device), DecodeWorkload(batch, CONTEXT, 2, "fp32")
    if device != "cpu" and batch > 1:
        assert_near(loaded, workload, spec)
        return
    for seed in range(SEEDS):
        logits, expected = decoded_logits(loaded, workload, spec, seed)
        if logits_agree(logits, expected):
            return
    assert_logits_agree(logits, expected)


@pytest.mark.parametrize("family", families.BLOCKS)
def test_every_family(family: str, device: str) -> None:
    assert_agrees(family, "fused+w8a8", 1, device)


@pytest.mark.parametrize(("family", "batch"), [("qwen2", 3), ("qwen3", 17), ("llama-tied", 33)])
def test_a_batch(family: str, batch: int, device: str) -> None:
    assert_agrees(family, "fused+w8a8", batch, device)


@pytest.mark.parametrize("words", ["head16", "embedding8", "head16+embedding8"])
def test_head_and_embedding_are_chosen(words: str, device: str) -> None:
    assert_agrees("llama-tied", f"fused+w8a8+{words}", 1, device)


@pytest.mark.parametrize(
    "left_out",
    ["norm", "residual", "norm-residual", "qkv", "rope", "attention", "gate_up", "head"],
)
def test_parts_can_be_left_out(left_out: str, device: str) -> None:
    assert_agrees("qwen2", f"fused+w8a8-{left_out}", 1, device)


@pytest.mark.gpu
@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("batch", [1, 5])
def test_every_family_as_a_graph(family: str, batch: int) -> None:
    assert_agrees(family, "fused+graph+w8a8", batch, "cuda")


def test_k_and_v_may_be_narrow_as_well(device: str) -> None:
    """What attention reads of them differs, what it gives is quantised as ever."""
    loaded, workload = load_family("qwen2", device), DecodeWorkload(2, CONTEXT, 2, "fp32")
    ids = ids_of(loaded, 2, 0)
    logits = []
    for words in ("", "+kv_fp8_e4m3"):
        step = fused(loaded, workload, f"fused+w8a8{words}")
        step.prefill(prompt_of(loaded, workload))
        logits.append(step.forced_step(ids))
    error = (logits[1] - logits[0]).norm() / logits[0].norm()
    assert 0 < error < 0.2


def test_the_activations_are_quantised_indeed(device: str) -> None:
    """The bounds above would notice a step that multiplies x as it is."""
    loaded = load_family("llama2", device)
    step, eager = both(loaded, DecodeWorkload(1, CONTEXT, 2, "fp32"), "fused+w8a8")
    ids = ids_of(loaded, 1, 0)
    exact = eager.forced_step(ids)
    error = (step.forced_step(ids) - exact).norm() / exact.norm()
    assert 2 * TENSOR_CORE_ERROR < error < 0.3


@pytest.mark.parametrize(
    ("words", "in_layer", "in_all"),
    [("", 4, 9), ("+head16", 4, 8), ("-norm", 4, 9), ("-qkv-gate_up", 4, 9)],
)
def test_each_product_has_one_launch_before_it(
    words: str, in_layer: int, in_all: int, device: str
) -> None:
    loaded = load_family("llama2", device)
    step = fused(loaded, DecodeWorkload(1, 3, 4, "bf16"), f"fused+w8a8{words}")
    placed = [one for one in step_operations(step.plan) if isinstance(one.operation, QuantizeRows)]
    assert len(placed) == in_all
    assert sum("layer.0" in one.path for one in placed) == in_layer
    assert all(one.path[-1] == "quantize" for one in placed)


def ranges_of(words: str, device: str) -> list[RangeReport]:
    step = fused(load_family("llama2", device), DecodeWorkload(1, 3, 4, "bf16"), f"fused{words}")
    paths = [one.path for one in step_operations(step.plan)]
    opened = dict.fromkeys(path[:depth] for path in paths for depth in range(1, len(path) + 1))
    return [range_of("/".join(path), 1) for path in opened]


@pytest.mark.parametrize("base", ["", "-norm", "+fp8_e4m3"])
def test_the_parts_of_a_layer_are_compared_with_those_of_other_variants(
    base: str, device: str
) -> None:
    rows = align_ranges(ranges_of(base, device), ranges_of("+w8a8", device), 1, 1)
    parts = [row for row in rows if row.path.rpartition("/")[0] in ("model", "model/layer.*")]
    assert len(parts) >= 5
    for row in parts:
        assert row.gpu_ops.base is not None
        assert row.gpu_ops.other is not None


def test_16_bit_models_keep_the_range_of_their_dtype_up_to_the_codes(device: str) -> None:
    loaded = load_family("llama2", device, torch.bfloat16)
    step = fused(loaded, DecodeWorkload(1, 3, 4, "bf16"), "fused+w8a8")
    assert step.plan.buffers.attended.dtype == step.plan.buffers.activation.dtype == torch.bfloat16
    step.prefill(torch.zeros(1, 3, dtype=torch.long))
    assert step.forced_step(torch.ones(1, dtype=torch.long, device=device)).isfinite().all()
