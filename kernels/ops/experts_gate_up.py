"""out[s] = activation(G_e n) * (U_e n) for the experts e that a token uses, n = RMSNorm(x); or
G_e n and U_e n as they are.

Bytes moved: G and U of the used experts once, x, the norm's weight and the router's logits once,
out once. The choice of the experts needs no launch: every program finds its own among the logits.
At batch 1 a program has rows of the expert of one slot. Of a batch it has rows of one expert, if a
token uses that expert: it multiplies them by all tokens, as the tensor cores would anyway, and
stores the products of those that do.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product, vector_product
from decodescope.kernels.device.activations import gated
from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.routing import next_expert, own_expert, router_keys, slots_of_expert
from decodescope.kernels.device.weight_rows import (
    group_scale_places,
    program_pairs,
    program_rows,
    scale_and_bias,
)
from decodescope.kernels.host.activation import activation_options
from decodescope.kernels.host.checks import check_apart, check_floats, check_output
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import Launch, Tensors, launch
from decodescope.kernels.host.product import NormedProduct, norm_arguments, product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.linear import linear_reference
from decodescope.kernels.ops.swiglu import swiglu_reference


def used_experts(logits: torch.Tensor, experts: Experts) -> torch.Tensor:
    """The experts of each token, int64 [batch, chosen], by falling logit, then by index."""
    values = logits.double()
    if experts.correction is not None:
        values = values.sigmoid() + experts.correction.double()
    order = torch.sort(values, dim=-1, descending=True, stable=True).indices
    return order[:, : experts.chosen]


def expert_matrix(matrix: WeightMatrix, count: int, expert: int) -> WeightMatrix:
    """The matrix of one of `count` experts."""
    parts: dict[str, Any] = {
        name: tensor.chunk(count)[expert]
        for name, tensor in zip(("data", "scale", "bias"), matrix.pointers, strict=True)
        if tensor is not None
    }
    return replace(matrix, **parts, group_scales=None)


def used_products(
    x: torch.Tensor,
    matrix: WeightMatrix,
    experts: Experts,
    logits: torch.Tensor,
    norm: Norm | None = None,
) -> torch.Tensor:
    """W_e n[b, s] + bias_e in float64, [batch, chosen, rows]; e the expert of slot s of b. x
    [batch, chosen, columns]."""
    rows = [
        linear_reference(
            x[token, slot : slot + 1], expert_matrix(matrix, experts.count, expert), norm
        )
        for token, used in enumerate(used_experts(logits, experts).tolist())
        for slot, expert in enumerate(used)
    ]
    return torch.cat(rows).view(*x.shape[:2], -1)


def experts_pairs_reference(
    x: torch.Tensor, norm: Norm | None, experts: Experts, logits: torch.Tensor
) -> Tensors:
    """Gate and up in float64, [batch, chosen, intermediate] each. x [batch, hidden], logits
    [batch, experts]."""
    of_slots = x[:, None].expand(-1, experts.chosen, -1)
    both = used_products(of_slots, experts.gate_up, experts, logits, norm)
    return (both[..., ::2], both[..., 1::2]) if experts.interleaved else both.chunk(2, dim=-1)


def experts_gate_up_reference(
    x: torch.Tensor, norm: Norm | None, experts: Experts, logits: torch.Tensor
) -> torch.Tensor:
    """Gate and up as `experts_pairs_reference`, joined by the activation."""
    gate, up = experts_pairs_reference(x, norm, experts, logits)
    return swiglu_reference(gate, up, experts.activation)


@triton.jit
def _program_units(
    w_ptr,
    unit,
    I: tl.constexpr,  # noqa: E741 - the field's name for the intermediate size
    ROW: tl.constexpr,
    ROWS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """As `program_pairs`, the rows of gate and up from pair `unit` on."""
    if INTERLEAVED:
        w_ptr, inside, rows = program_rows(w_ptr, unit // (ROWS // 2), 2 * I, ROW, ROWS)
        rows = tl.minimum(rows, 2 * I - 1)
    else:
        w_ptr, inside, rows = program_pairs(w_ptr, unit, I, ROW, ROWS)
    return w_ptr, inside, rows


@triton.jit
def _store_pairs(
    out_ptr,
    up_ptr,
    places,
    gate,
    up,
    mask,
    GELU: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
):
    if up_ptr is None:
        gate = gated(gate, up, GELU, ALPHA, LIMIT)
    else:
        tl.store(up_ptr + places, rounded(up, up_ptr.dtype.element_ty), mask=mask)
    tl.store(out_ptr + places, rounded(gate, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _experts_gate_up_kernel(
    x_ptr,
    g_ptr,
    logits_ptr,
    correction_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    up_ptr,
    eps,
    EXPERTS: tl.constexpr,
    FIRST: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    GELU: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    I: tl.constexpr,  # noqa: E741 - the field's name for the intermediate size
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    PDL: tl.constexpr,
):
    slot = tl.program_id(1)
    # Which weights these are is known only now.
    wait_for_previous(PDL)
    # The next kernel, `experts_down`, may read the router's logits as soon as it starts.
    allow_next(PDL)
    weights, keys = router_keys(logits_ptr, correction_ptr, 0, EXPERTS)
    expert, _, keys = next_expert(weights, keys)
    for _ in range(slot):
        expert, _, keys = next_expert(weights, keys)
    if HELD < EXPERTS:
        expert, is_own = own_expert(expert, FIRST, HELD)
        if not is_own:
            return
    unit = tl.program_id(0) * (ROWS // 2)
    w_ptr += expert * (2 * I * LAYOUT[0])
    w_ptr, inside, rows = _program_units(w_ptr, unit, I, LAYOUT[0], ROWS, INTERLEAVED)
    rows += expert * (2 * I)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, None)
    first = vector_product.first_blocks(w_ptr, inside, g_ptr, 0, K, BLOCK, 1, AHEAD, LAYOUT)
    sums = vector_product.vector_products(
        first, w_ptr, inside, x_ptr, None, g_ptr, eps, 0, K, BLOCK, 1, AHEAD, LAYOUT
    )
    sums = sums * scale + bias
    gate, up = tl.split(tl.reshape(sums, (ROWS // 2, 2)))
    units = unit + tl.arange(0, ROWS // 2)
    _store_pairs(out_ptr, up_ptr, slot * I + units, gate, up, units < I, GELU, ALPHA, LIMIT)


@triton.jit
def _experts_gate_up_batched_kernel(
    x_ptr,
    g_ptr,
    logits_ptr,
    correction_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    out_ptr,
    up_ptr,
    eps,
    EXPERTS: tl.constexpr,
    FIRST: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    GELU: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    I: tl.constexpr,  # noqa: E741 - the field's name for the intermediate size
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    PDL: tl.constexpr,
):
    expert = tl.program_id(1)
    wait_for_previous(PDL)
    # The next kernels, down and combine, may read the router's logits as soon as they start.
    allow_next(PDL)
    slots = slots_of_expert(logits_ptr, correction_ptr, FIRST + expert, BATCH, TOKENS, EXPERTS)
    used = slots < CHOSEN
    if tl.max(used.to(tl.int32), axis=0) > 0:
        unit = tl.program_id(0) * (ROWS // 2)
        first = expert.to(tl.int64) * (2 * I)
        w_ptr += first * LAYOUT[0]
        w_ptr, inside, rows = _program_units(w_ptr, unit, I, LAYOUT[0], ROWS, INTERLEAVED)
        rows += first
        scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], None)
        group_scales = group_scale_places(group_scale_ptr, rows, LAYOUT)
        token = tl.arange(0, TOKENS)
        source = tl.minimum(token, BATCH - 1)
        sums = batched_product.gathered_products(
            w_ptr,
            inside,
            x_ptr,
            None,
            source,
            used,
            0,
            K,
            BLOCK,
            1,
            WORDS,
            LAYOUT,
            group_scales,
            num_stages,
        )
        gate, up = batched_product.split_pairs(sums * scale + bias)
        units = (unit + tl.arange(0, ROWS // 2))[:, None]
        places = (token * CHOSEN + slots)[None, :] * I + units
        mask = (units < I) & used[None, :]
        _store_pairs(out_ptr, up_ptr, places, gate, up, mask, GELU, ALPHA, LIMIT)


@dataclass(frozen=True, slots=True)
class ExpertsGateUp(NormedProduct):
    """out[b, s, i] = activation(G_e[i] . n[b]) * (U_e[i] . n[b]) as `Experts` says, e the
    expert of b with the s-th largest of `logits`, n = RMSNorm(x), or x where `norm` is None. With
    `up` they stay apart: out is G_e[i] . n[b] and up[b, s, i] the other.

    x [batch, hidden], out and up [batch, chosen, intermediate] of dtypes that `check_output`
    allows, logits [batch, experts], contiguous; batch 1..64. `tile.rows` counts rows of G and U, so
    half as many outputs. Slots of experts that other ranks hold are not written.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out or up in x's memory; a tile of one
            row or of more than one split, or for a batch a tile below 16 x 16; a norm of several
            tokens.
    """

    x: torch.Tensor
    norm: Norm | None
    experts: Experts
    logits: torch.Tensor
    out: torch.Tensor
    tile: Tile
    up: torch.Tensor | None = None

    x_scale = None

    def launch(self, pdl: bool = False) -> Launch:
        x, experts, out, tile = self.x, self.experts, self.out, self.tile
        batch = self.checked_batch(experts.gate_up)
        check_floats("logits", self.logits, (batch, experts.count), x.device)
        for name, written in zip(("out", "up"), self.outputs(0), strict=False):
            check_output(name, written, (batch, experts.chosen, experts.intermediate), x)
            check_apart(name, written, x)
        if tile.rows < 2:
            raise ValueError("a tile of one row holds no pair of gate and up")
        g, eps = norm_arguments(self.norm, batch)
        batched = batch > 1
        return launch(
            _experts_gate_up_batched_kernel if batched else _experts_gate_up_kernel,
            (
                triton.cdiv(experts.intermediate, tile.rows // 2),
                experts.held if batched else experts.chosen,
            ),
            x,
            g,
            self.logits,
            experts.correction,
            *experts.gate_up.operands(batch),
            out,
            self.up,
            eps,
            EXPERTS=experts.count,
            FIRST=experts.first,
            HELD=experts.held,
            CHOSEN=experts.chosen,
            INTERLEAVED=experts.interleaved,
            **activation_options(experts.activation),
            I=experts.intermediate,
            **product_options(x, experts.gate_up, tile, pdl),
        )

    def inputs(self, position: int) -> Tensors:
        return self.x, self.logits, *self.weights

    @property
    def weights(self) -> Tensors:
        norm = () if self.norm is None else (self.norm.weight,)
        return *norm, *self.experts.read(self.experts.gate_up, len(self.x))

    def outputs(self, position: int) -> Tensors:
        return (self.out,) if self.up is None else (self.out, self.up)

    def reference(self, position: int) -> Tensors:
        operands = self.x, self.norm, self.experts, self.logits
        if self.up is not None:
            return experts_pairs_reference(*operands)
        return (experts_gate_up_reference(*operands),)
