"""The kernels of a mixture of experts against float64 and transformers."""

from dataclasses import replace

import pytest
import torch
from transformers import GptOssConfig, Qwen3MoeConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from decodescope.kernels.host.activation import ClampedGate
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import NARROW_DTYPES, WeightMatrix
from decodescope.kernels.ops.experts_down import ExpertsDown, experts_down_reference
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import (
    ExpertsGateUp,
    experts_gate_up_reference,
    used_experts,
)
from decodescope.kernels.ops.swiglu import Swiglu
from tests.helpers.kernel_inputs import relative_error, run_experts_down

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# (batch, experts, chosen, intermediate, hidden, tile)
SHAPES = [
    (1, 8, 2, 12, 64, Tile(4, 64)),
    (1, 5, 3, 13, 77, Tile(8, 32, num_stages=2)),
    (1, 1, 1, 7, 33, Tile(2, 16)),
    (1, 3, 3, 33, 20, Tile(16, 16)),
    (3, 6, 2, 16, 40, Tile(16, 64)),
    (17, 9, 4, 5, 24, Tile(32, 32)),
    (2, 20, 20, 3, 16, Tile(16, 16)),
    (3, 1, 1, 7, 33, Tile(16, 16)),
    # More experts than are compared at once.
    (17, 70, 2, 9, 30, Tile(16, 16, num_stages=2)),
]
# Each kernel, of one token and of a batch, in each dtype; every shape in the one that hides least.
IN_DTYPES = [
    *((*shape, torch.float32) for shape in SHAPES),
    *((*shape, dtype) for shape in (SHAPES[1], SHAPES[5]) for dtype in DTYPES[1:]),
]


def experts_of(make, count, chosen, intermediate, hidden, normalized=True, biased=False) -> Experts:
    return Experts(
        make.weight(count, hidden),
        make.weight(count * 2 * intermediate, hidden, scaled=biased, biased=biased),
        make.weight(count * hidden, intermediate, scaled=biased, biased=biased),
        chosen,
        normalized,
    )


@pytest.mark.parametrize(
    ("batch", "count", "chosen", "intermediate", "hidden", "tile", "dtype"), IN_DTYPES
)
def test_gated_products_of_the_used_experts(
    batch, count, chosen, intermediate, hidden, tile, dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    experts = experts_of(make, count, chosen, intermediate, hidden, biased=chosen == 3)
    x, logits = make.random(batch, hidden), make.random(batch, count, seed=4)
    norm = make.norm(hidden) if batch == 1 else None
    out, again = (make.poisoned(batch, chosen, intermediate) for _ in range(2))
    ExpertsGateUp(x, norm, experts, logits, out, tile).launch()
    ExpertsGateUp(x, norm, experts, logits, again, tile).launch()
    assert_close(out, experts_gate_up_reference(x, norm, experts, logits))
    assert torch.equal(out, again)


@pytest.mark.parametrize(
    ("batch", "count", "chosen", "intermediate", "hidden", "tile", "dtype", "normalized"),
    [*((*one, True) for one in IN_DTYPES), *((*one, False) for one in IN_DTYPES[1:9:4])],
)
def test_weighted_sums_are_added_to_the_residual(
    batch, count, chosen, intermediate, hidden, tile, normalized, dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    experts = experts_of(make, count, chosen, intermediate, hidden, normalized, chosen == 3)
    x, logits = make.random(batch, chosen, intermediate), 3 * make.random(batch, count, seed=4)
    residual = make.random(batch, hidden, seed=5)
    expected = experts_down_reference(x, experts, logits, residual)
    again = residual.clone()
    run_experts_down(x, experts, logits, residual, tile)
    run_experts_down(x, experts, logits, again, tile)
    assert_close(residual, expected)
    assert torch.equal(residual, again)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_partial_sums_of_a_rank_are_float32(batch: int, inputs, assert_close) -> None:
    make = inputs(torch.bfloat16)
    experts = experts_of(make, 5, 3, 37, 100)
    x, logits = make.random(batch, 3, 37), make.random(batch, 5, seed=4)
    partial = make.poisoned(batch, 100, dtype=torch.float32)
    expected = experts_down_reference(x, experts, logits, torch.zeros_like(partial))
    run_experts_down(x, experts, logits, partial, Tile(16, 32), adds=False)
    assert_close(partial, expected)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_parts_that_ranks_hold_add_up_to_the_whole(
    batch: int, normalized: bool, inputs, assert_close
) -> None:
    make = inputs(torch.float32)
    whole, tile = experts_of(make, 7, 3, 37, 100, normalized, biased=True), Tile(16, 32)
    x, logits = make.random(batch, 100), 3 * make.random(batch, 7, seed=4)
    hidden = experts_gate_up_reference(x, None, whole, logits)
    expected = experts_down_reference(hidden, whole, logits, torch.zeros_like(x))
    total = torch.zeros_like(x)
    for held in (range(2), range(2, 3), range(3, 7)):
        gate_up, down = (
            WeightMatrix(*(None if one is None else one[rows] for one in matrix.pointers))
            for matrix in whole.matrices
            for rows in [slice(*(at * matrix.rows // 7 for at in (held.start, held.stop)))]
        )
        part = replace(whole, gate_up=gate_up, down=down, part=held)
        # What is not written here is never read.
        out, sums = make.poisoned(batch, 3, 37), make.poisoned(batch, 100)
        ExpertsGateUp(x, None, part, logits, out, tile).launch()
        run_experts_down(out, part, logits, sums, tile, adds=False)
        total += sums
    assert_close(total, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", ClampedGate(1.6, 0.4)])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_one_launch_may_be_several(batch, activation, inputs, assert_close) -> None:
    make = inputs(torch.float32)
    experts = replace(
        experts_of(make, 6, 3, 13, 40, biased=True),
        activation=activation,
        interleaved=activation != "silu",
    )
    x, logits = make.random(batch, 40), make.random(batch, 6, seed=4)
    gate, up, out = (make.poisoned(batch, 3, 13) for _ in range(3))
    apart = ExpertsGateUp(x, None, experts, logits, gate, Tile(16, 64), up)
    expected_gate, expected_up = apart.reference(0)
    apart.launch()
    assert apart.outputs(0) == (gate, up)
    assert_close(gate, expected_gate)
    assert_close(up, expected_up)
    rows = (each.flatten(0, 1) for each in (gate, up, out))
    Swiglu(*rows, activation).launch()
    assert_close(out, experts_gate_up_reference(x, None, experts, logits))
    residual = make.poisoned(batch, 40)
    run_experts_down(out, experts, logits, residual, Tile(16, 16), adds=False)
    zeros = torch.zeros_like(residual)
    assert_close(residual, experts_down_reference(out, experts, logits, zeros))
    down = ExpertsDown(out, experts, logits, residual, Tile(16, 16), adds=False)
    assert (down.outputs(0), down.updated) == ((residual,), ())
    assert_close(residual, *down.reference(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_correction_chooses_experts_and_sigmoids_weigh_them(
    batch, dtype, inputs, assert_close
) -> None:
    make = inputs(dtype)
    correction = torch.linspace(1.5, 0.0, 7, device=make.device)
    plain = experts_of(make, 7, 3, 16, 40)
    experts = replace(plain, correction=correction, factor=1.7)
    x, logits = make.random(batch, 40), make.random(batch, 7, seed=4).float()
    assert not torch.equal(used_experts(logits, plain), used_experts(logits, experts))
    out, residual = make.poisoned(batch, 3, 16), make.random(batch, 40, seed=5)
    ExpertsGateUp(x, None, experts, logits, out, Tile(16, 64)).launch()
    assert_close(out, experts_gate_up_reference(x, None, experts, logits))
    expected = experts_down_reference(out, experts, logits, residual)
    run_experts_down(out, experts, logits, residual, Tile(16, 16))
    assert_close(residual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_a_batch_are_those_of_its_slots(dtype, inputs, assert_close) -> None:
    make = inputs(dtype)
    experts = experts_of(make, 6, 2, 16, 40, biased=True)
    x, logits = make.random(3, 2, 16), make.random(3, 6, seed=4)
    out = torch.full((3, 2, 40), torch.nan, dtype=torch.float32, device=make.device)
    operation = ExpertsDownProducts(x, experts, logits, out, Tile(16, 16))
    operation.launch()
    assert_close(out.to(dtype), *operation.reference(0))


@pytest.mark.parametrize(
    ("format", "dtype"),
    [*((format, torch.bfloat16) for format in NARROW_DTYPES), ("int8", torch.float16)],
)
@pytest.mark.parametrize(
    ("batch", "intermediate", "hidden", "tile"),
    [
        (1, 37, 100, Tile(16, 64, num_stages=2)),
        (1, 37, 100, Tile(8, 64)),
        (3, 37, 100, Tile(32, 64)),
        # In words of four elements.
        (3, 48, 96, Tile(64, 32)),
    ],
)
def test_narrow_experts_pass_float16_on(
    batch: int, intermediate: int, hidden: int, tile: Tile, dtype, format, inputs
) -> None:
    """On the tensor cores from 16 rows on. Experts end inside the tiles, with scales of their
    own."""
    make = inputs(dtype)
    count, chosen = 5, 3
    experts = Experts(
        make.weight(count, hidden),
        make.narrow(count * 2 * intermediate, hidden, format),
        make.narrow(count * hidden, intermediate, format),
        chosen,
        normalized=True,
    )
    x, logits = make.random(batch, hidden), make.random(batch, count, seed=4)
    norm = make.norm(hidden) if batch == 1 else None
    out = make.poisoned(batch, chosen, intermediate, dtype=torch.float16)
    ExpertsGateUp(x, norm, experts, logits, out, tile).launch()
    expected = experts_gate_up_reference(x, norm, experts, logits)
    # The error of gate counts again in silu.
    assert relative_error(out, expected) < 4 * 2.0**-11
    residual, again = (make.random(batch, hidden, seed=5) for _ in range(2))
    expected = experts_down_reference(out, experts, logits, residual)
    run_experts_down(out, experts, logits, residual, tile)
    run_experts_down(out, experts, logits, again, tile)
    assert relative_error(residual, expected) < (2.0**-7 if dtype == torch.bfloat16 else 2.0**-11)
    assert torch.equal(residual, again)


@pytest.mark.parametrize("normalized", [True, False])
def test_a_mixture_agrees_with_transformers(normalized: bool, inputs) -> None:
    make = inputs(torch.float32)
    config = Qwen3MoeConfig(
        hidden_size=48,
        moe_intermediate_size=20,
        num_experts=7,
        num_experts_per_tok=3,
        norm_topk_prob=normalized,
    )
    block = Qwen3MoeSparseMoeBlock(config).to(make.device).requires_grad_(False)
    block.gate.weight.copy_(make.random(7, 48))
    block.experts.gate_up_proj.copy_(make.random(7, 40, 48) / 7)
    block.experts.down_proj.copy_(make.random(7, 48, 20) / 4)
    experts = Experts(
        WeightMatrix(block.gate.weight),
        WeightMatrix(block.experts.gate_up_proj.view(-1, 48)),
        WeightMatrix(block.experts.down_proj.view(-1, 20)),
        3,
        normalized,
    )
    x = make.random(2, 48, seed=1)
    logits, out = x @ block.gate.weight.T, make.poisoned(2, 3, 20)
    residual = torch.zeros_like(x)
    ExpertsGateUp(x, None, experts, logits, out, Tile(16, 64)).launch()
    run_experts_down(out, experts, logits, residual, Tile(16, 32))
    torch.testing.assert_close(residual, block(x[None])[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("limit", [0.5, 7.0])
def test_clamped_experts_agree_with_transformers(limit: float, inputs) -> None:
    make = inputs(torch.float32)
    config = GptOssConfig(
        hidden_size=48,
        intermediate_size=21,
        num_local_experts=5,
        num_experts_per_tok=3,
        swiglu_limit=limit,
        num_hidden_layers=1,
    )
    block = GptOssMLP(config).to(make.device).requires_grad_(False)
    for seed, parameter in enumerate(block.parameters()):
        parameter.copy_(make.random(*parameter.shape, seed=seed) / parameter.dim())
    router, theirs = block.router, block.experts
    # Older versions of transformers do not read it from the configuration.
    theirs.limit = limit
    gate_up = theirs.gate_up_proj.mT.reshape(-1, 48)
    down = theirs.down_proj.mT.reshape(-1, 21)
    experts = Experts(
        WeightMatrix(router.weight, bias=router.bias),
        WeightMatrix(gate_up, bias=theirs.gate_up_proj_bias.flatten()),
        WeightMatrix(down, bias=theirs.down_proj_bias.flatten()),
        3,
        normalized=True,
        interleaved=True,
        activation=ClampedGate(1.702, limit),
    )
    x = make.random(1, 48, seed=1)
    logits, out = x @ router.weight.T + router.bias, make.poisoned(1, 3, 21)
    residual = torch.zeros_like(x)
    gated = ExpertsGateUp(x, None, experts, logits, out, Tile(16, 64))
    gated.launch()
    torch.testing.assert_close(out.double(), gated.reference(0)[0], atol=2e-5, rtol=1e-5)
    ExpertsDown(out, experts, logits, residual, Tile(8, 32)).launch()
    torch.testing.assert_close(residual, block(x[None])[0][0], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("logits", "used"),
    [
        ([1.0, 2.0, 0.5, 2.0, 0.5, 2.0], [1, 3, 5]),
        ([-1.0, -0.0, -2.0, 0.0, -0.0, 0.0], [1, 3, 4]),
        ([-3.0] * 6, [0, 1, 2]),
    ],
)
def test_of_equal_logits_the_lowest_indices_are_used(logits, used, dtype, batch, inputs) -> None:
    make = inputs(dtype)
    experts = experts_of(make, 6, 3, 4, 16)
    of_each = torch.tensor([logits] * batch, dtype=dtype, device=make.device)
    x, out = make.random(batch, 16), make.poisoned(batch, 3, 4)
    ExpertsGateUp(x, None, experts, of_each, out, Tile(16, 16)).launch()
    matrices = experts.gate_up.data.view(6, 8, 16)[used].float()
    gate, up = (x.float() @ matrices.mT).chunk(2, dim=-1)
    expected = (torch.nn.functional.silu(gate) * up).transpose(0, 1)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("is_narrow", [False, True])
def test_nan_in_an_expert_that_is_not_used_changes_nothing(is_narrow: bool, inputs) -> None:
    make = inputs(torch.float32)
    experts = experts_of(make, 4, 2, 8, 16)
    if is_narrow:
        gate_up, down = make.narrow(64, 16, "fp8_e4m3"), make.narrow(64, 8, "fp8_e4m3")
        experts = replace(experts, gate_up=gate_up, down=down)
    for matrix in experts.matrices:
        code = 0x7F if is_narrow else 0xFF
        matrix.data.view(torch.uint8).view(4, 16, -1)[2] = code
        assert matrix.data.float().view(4, 16, -1)[2].isnan().all()
    x = make.random(2, 16)
    logits = torch.tensor([[1.0, 3.0, 0.0, 2.0], [0.0, 1.0, 5.0, 2.0]], device=make.device)
    out, residual = make.poisoned(2, 2, 8), torch.zeros_like(x)
    ExpertsGateUp(x, None, experts, logits, out, Tile(16, 16)).launch()
    run_experts_down(out, experts, logits, residual, Tile(16, 16))
    assert residual[0].isfinite().all()
    assert residual[1].isnan().all()


@pytest.mark.parametrize("nan", [torch.nan, -torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
def test_nan_among_the_logits_reads_no_further_than_the_experts(batch, dtype, nan, inputs) -> None:
    make = inputs(dtype)
    experts = experts_of(make, 3, 2, 8, 16)
    logits = torch.full((batch, 3), nan, dtype=dtype, device=make.device)
    out, residual = make.poisoned(batch, 2, 8), make.random(batch, 16)
    ExpertsGateUp(make.random(batch, 16), None, experts, logits, out, Tile(16, 16)).launch()
    assert out.isfinite().all()
    run_experts_down(out, experts, logits, residual, Tile(16, 16))
    assert residual.isnan().all()


def test_bytes_are_those_of_the_used_experts(inputs) -> None:
    make = inputs(torch.float32)
    experts = experts_of(make, 8, 2, 6, 16)
    x, logits, out = make.random(1, 16), make.random(1, 8), make.poisoned(1, 2, 6)
    gate_up = ExpertsGateUp(x, None, experts, logits, out, Tile(4, 16))
    assert gate_up.bytes_moved(0) == 4 * (2 * 12 * 16 + 16 + 8 + 12)
    down = ExpertsDown(out, experts, logits, x, Tile(4, 8))
    assert down.bytes_moved(0) == 4 * (2 * 16 * 6 + 12 + 8 + 2 * 16)
    many = make.random(64, 16)
    assert sum(part.nbytes for part in experts.read(experts.down, len(many))) == 4 * 8 * 16 * 6
