"""out = silu(G n) * (U n), n = RMSNorm(x): the first half of the MLP in one launch. Or with GELU.

Bytes moved: G and U once, x and the norm's weight once, out once. The launches that it replaces
also write and read n, both products and silu's result.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product, vector_product
from decodescope.kernels.device.activations import gated
from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import group_scale_places, program_pairs, scale_and_bias
from decodescope.kernels.host.activation import Activation
from decodescope.kernels.host.checks import check_apart, check_output
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.product import NormedProduct
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.linear import linear_reference
from decodescope.kernels.ops.swiglu import swiglu_reference


def norm_gate_up_reference(
    x: torch.Tensor, norm: Norm | None, gate_up: WeightMatrix, activation: Activation = "silu"
) -> torch.Tensor:
    """activation(G n) * (U n) in float64. x [batch, hidden], gate_up [2 * intermediate, hidden]."""
    gate, up = linear_reference(x, gate_up, norm).chunk(2, dim=-1)
    return swiglu_reference(gate, up, activation)


@triton.jit
def _norm_gate_up_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    eps,
    I: tl.constexpr,  # noqa: E741 - the field's name for the intermediate size
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    GELU: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    # Rows of the tile alternate between G and U, so that one product serves both.
    unit = tl.program_id(0) * (ROWS // 2)
    w_ptr, inside, rows = program_pairs(w_ptr, unit, I, LAYOUT[0], ROWS)
    first = vector_product.first_blocks(w_ptr, inside, g_ptr, 0, K, BLOCK, 1, AHEAD, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, None)
    wait_for_previous(PDL)
    sums = vector_product.vector_products(
        first, w_ptr, inside, x_ptr, x_scale_ptr, g_ptr, eps, 0, K, BLOCK, 1, AHEAD, LAYOUT
    )
    sums = sums * scale + bias
    gate, up = tl.split(tl.reshape(sums, (ROWS // 2, 2)))
    units = unit + tl.arange(0, ROWS // 2)
    activated = gated(gate, up, GELU)
    tl.store(out_ptr + units, rounded(activated, out_ptr.dtype.element_ty), mask=units < I)


@triton.jit
def _norm_gate_up_batched_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    out_ptr,
    eps,
    I: tl.constexpr,  # noqa: E741 - the field's name for the intermediate size
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    GELU: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    unit = tl.program_id(0) * (ROWS // 2)
    w_ptr, inside, rows = program_pairs(w_ptr, unit, I, LAYOUT[0], ROWS)
    batched_product.prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], None)
    group_scales = group_scale_places(group_scale_ptr, rows, LAYOUT)
    wait_for_previous(PDL)
    sums = batched_product.batched_products(
        w_ptr,
        inside,
        x_ptr,
        x_scale_ptr,
        0,
        BATCH,
        TOKENS,
        K,
        BLOCK,
        1,
        WORDS,
        LAYOUT,
        group_scales,
        num_stages,
    )
    sums = sums * scale + bias
    gate, up = batched_product.split_pairs(sums)
    units = unit + tl.arange(0, ROWS // 2)
    token = tl.arange(0, TOKENS)
    tl.store(
        out_ptr + token[None, :] * I + units[:, None],
        rounded(gated(gate, up, GELU), out_ptr.dtype.element_ty),
        mask=(units < I)[:, None] & (token < BATCH)[None, :],
    )


@dataclass(frozen=True, slots=True)
class NormGateUp(NormedProduct):
    """out[b, i] = activation(G[i] . n[b]) * (U[i] . n[b]), n = RMSNorm(x), or x where `norm` is
    None.

    x [batch, hidden], out [batch, intermediate], contiguous, of one dtype, or out in float16 for
    narrow weights (`check_output`); batch 1..64; or x E4M3 with `x_scale` and FP8 weights
    (`Product`). `gate_up` [2 * intermediate, hidden] holds G's rows, then U's. `tile.rows` counts
    rows of both, so half as many outputs.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out in x's memory; a tile of one row
            or of more than one split, or for a batch a tile below 16 x 16.
    """

    x: torch.Tensor
    norm: Norm | None
    gate_up: WeightMatrix
    out: torch.Tensor
    tile: Tile
    x_scale: torch.Tensor | None = None
    activation: Activation = "silu"

    def launch(self, pdl: bool = False) -> Launch:
        gate_up, out = self.gate_up, self.out
        if gate_up.rows % 2:
            raise ValueError(f"gate_up of {gate_up.rows} rows: must hold as many gate as up rows")
        intermediate = gate_up.rows // 2
        batch = self.checked_batch(gate_up)
        check_output("out", out, (batch, intermediate), self.x)
        check_apart("out", out, self.x)
        if self.tile.rows < 2:
            raise ValueError("a tile of one row holds no pair of gate and up")
        kernels = _norm_gate_up_kernel, _norm_gate_up_batched_kernel
        programs = triton.cdiv(intermediate, self.tile.rows // 2)
        gelu = self.activation == "gelu_tanh"
        return self.launched(kernels, programs, gate_up, (out,), (), pdl, I=intermediate, GELU=gelu)

    def reference(self, position: int) -> Tensors:
        return (norm_gate_up_reference(self.values, self.norm, self.gate_up, self.activation),)
