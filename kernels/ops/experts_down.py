"""residual += sum over the used experts e of p_e (D_e x_e): the experts' down projection, weighted,
of one token; or that sum alone.

Bytes moved: D of the used experts once, the activations and the router's logits once, the residual
read and written; over the links, the sums to each other rank of an `exchange`. The products of the
experts stay in registers, and so do their weights, which every program finds from the logits. The
experts are added in the order of their logits, so that the same inputs give the same bits.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import vector_product
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.pushed_sums import message_slots, message_turn, push_sums
from decodescope.kernels.device.routing import next_expert, own_expert, router_keys
from decodescope.kernels.device.weight_rows import program_rows, scale_and_bias
from decodescope.kernels.host.checks import check_floats, check_residual, check_unsplit
from decodescope.kernels.host.exchange import Exchange, sending
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import Launch, ResidualOperation, Tensors, launch
from decodescope.kernels.host.product import product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_combine import experts_combine_reference
from decodescope.kernels.ops.experts_gate_up import used_products


def experts_down_reference(
    x: torch.Tensor, experts: Experts, logits: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """residual + sum over s of p[b, s] (D_e x[b, s] + bias_e) in float64. x [batch, chosen,
    intermediate], residual [batch, hidden]."""
    products = used_products(x, experts.down, experts, logits)
    return experts_combine_reference(products, experts, logits, residual)


@triton.jit
def _experts_down_kernel(
    x_ptr,
    logits_ptr,
    correction_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    residual_ptr,
    peers_ptr,
    turns_ptr,
    N: tl.constexpr,
    EXPERTS: tl.constexpr,
    FIRST: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,
    NORMALIZED: tl.constexpr,
    FACTOR: tl.constexpr,
    ADDS: tl.constexpr,
    MESSAGE: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    block = tl.program_id(0)
    w_ptr, inside, rows = program_rows(w_ptr, block, N, LAYOUT[0], ROWS)
    mask = rows < N
    # Not written by the previous kernel, which starts this one only when they are complete.
    weights, keys = router_keys(logits_ptr, correction_ptr, 0, EXPERTS)
    used = tl.full((), 0.0, tl.float32)
    # All experts' first blocks are asked for before one is multiplied: they come together.
    matrices, blocks, shares = (), (), ()
    for _ in tl.static_range(CHOSEN):
        expert, share, keys = next_expert(weights, keys)
        used += share
        is_own = True
        if HELD < EXPERTS:
            expert, is_own = own_expert(expert, FIRST, HELD)
        first_row = expert * N
        matrix = w_ptr + first_row * LAYOUT[0]
        first = vector_product.first_blocks(matrix, inside, None, 0, K, BLOCK, 1, AHEAD, LAYOUT)
        scale, bias = scale_and_bias(scale_ptr, bias_ptr, first_row + rows, mask)
        # Triton unpacks no tuples.
        matrices = matrices + (matrix,)  # type: ignore[assignment]  # noqa: RUF005
        blocks = blocks + (first,)  # type: ignore[assignment]  # noqa: RUF005
        shares = shares + ((share, scale, bias, is_own),)  # type: ignore[assignment]  # noqa: RUF005
    slots = message_slots(peers_ptr, MESSAGE)
    wait_for_previous(PDL)
    turn = message_turn(turns_ptr, MESSAGE)
    places = residual_ptr + rows
    if ADDS:
        residual = tl.load(places, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for slot in tl.static_range(CHOSEN):
        slot_ptr = x_ptr + slot * K
        first, matrix = blocks[slot], matrices[slot]
        sums = vector_product.vector_products(
            first, matrix, inside, slot_ptr, None, None, 0.0, 0, K, BLOCK, 1, AHEAD, LAYOUT
        )
        share, scale, bias, is_own = shares[slot]
        weighted = share * (sums * scale + bias)
        if HELD < EXPERTS:
            # What x has there may be any number.
            weighted = tl.where(is_own, weighted, 0.0)
        total += weighted
    if not NORMALIZED:
        used = tl.sum(weights, axis=0)
    total = FACTOR * total / used
    if ADDS:
        total += residual
    if MESSAGE is not None:
        push_sums(total[:, None], block * ROWS, 0, slots, turn, MESSAGE)
    tl.store(places, total.to(residual_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class ExpertsDown(ResidualOperation):
    """residual[n] += sum over s of p[s] (D_e[n] . x[s] + bias_e[n]), in place, rounded once; e the
    expert with the s-th largest of `logits`, p its weight (`Experts`). Unless it `adds`, what was
    there is neither read nor kept.

    x [1, chosen, intermediate], logits [1, experts], residual [1, hidden] of a dtype that
    `check_residual` allows beside x, contiguous; `exchange` as of `LinearResidual`. Launched with
    overlap, it must come after `ExpertsGateUp` on the same logits.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a tile of more than one split.
    """

    x: torch.Tensor
    experts: Experts
    logits: torch.Tensor
    residual: torch.Tensor
    tile: Tile
    adds: bool = True
    exchange: Exchange | None = None

    def launch(self, pdl: bool = False) -> Launch:
        x, experts, residual, tile = self.x, self.experts, self.residual, self.tile
        hidden, device = experts.router.columns, x.device
        check_floats("x", x, (1, experts.chosen, experts.intermediate), device)
        check_residual(residual, (1, hidden), x)
        check_floats("logits", self.logits, (1, experts.count), device)
        check_unsplit(tile)
        operands, message = sending(self.exchange, residual, tile.num_warps)
        return launch(
            _experts_down_kernel,
            (triton.cdiv(hidden, tile.rows),),
            x,
            self.logits,
            experts.correction,
            *experts.down.pointers,
            residual,
            *operands,
            N=hidden,
            EXPERTS=experts.count,
            FIRST=experts.first,
            HELD=experts.held,
            CHOSEN=experts.chosen,
            NORMALIZED=experts.normalized,
            FACTOR=experts.factor,
            ADDS=self.adds,
            MESSAGE=message,
            **product_options(x[:, 0], experts.down, tile, pdl),
        )

    def inputs(self, position: int) -> Tensors:
        return self.x, self.logits, *self.weights

    @property
    def weights(self) -> Tensors:
        return self.experts.read(self.experts.down, 1)

    def reference(self, position: int) -> Tensors:
        return (experts_down_reference(self.x, self.experts, self.logits, self.start),)
