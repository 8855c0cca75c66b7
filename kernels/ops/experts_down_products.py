"""out[s] = D_e x_s: the down projection of the experts that the tokens of a batch use.

Bytes moved: D of the used experts once, the activations and the router's logits once, out once. A
program has rows of one expert, as in `experts_gate_up`. `experts_combine` adds the products up.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.routing import slots_of_expert
from decodescope.kernels.device.weight_rows import group_scale_places, program_rows, scale_and_bias
from decodescope.kernels.host.checks import check_floats, check_tensor, check_unsplit
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.product import product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.workspace import MAX_BATCH
from decodescope.kernels.ops.experts_gate_up import used_products


@triton.jit
def _experts_down_products_kernel(
    x_ptr,
    logits_ptr,
    correction_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    out_ptr,
    N: tl.constexpr,
    EXPERTS: tl.constexpr,
    FIRST: tl.constexpr,
    CHOSEN: tl.constexpr,
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
    allow_next(PDL)
    expert = tl.program_id(1)
    first = expert.to(tl.int64) * N
    w_ptr += first * LAYOUT[0]
    w_ptr, inside, rows = program_rows(w_ptr, tl.program_id(0), N, LAYOUT[0], ROWS)
    # Not written by the previous kernel, which starts this one only when they are complete.
    slots = slots_of_expert(logits_ptr, correction_ptr, FIRST + expert, BATCH, TOKENS, EXPERTS)
    used = slots < CHOSEN
    is_used = tl.max(used.to(tl.int32), axis=0) > 0
    if is_used:
        batched_product.prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL, LAYOUT)
    wait_for_previous(PDL)
    if is_used:
        mask = (rows < N)[:, None]
        scale, bias = scale_and_bias(scale_ptr, bias_ptr, (first + rows)[:, None], mask)
        group_scales = group_scale_places(group_scale_ptr, first + rows, LAYOUT)
        places = tl.where(used, tl.arange(0, TOKENS) * CHOSEN + slots, 0)
        sums = batched_product.gathered_products(
            w_ptr,
            inside,
            x_ptr,
            None,
            places,
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
        tl.store(
            out_ptr + places[None, :] * N + rows[:, None],
            sums * scale + bias,
            mask=mask & used[None, :],
        )


@dataclass(frozen=True, slots=True)
class ExpertsDownProducts(KernelOperation):
    """out[b, s, n] = D_e[n] . x[b, s] + bias_e[n], e the expert of b with the s-th largest of
    `logits`.

    x [batch, chosen, intermediate], logits [batch, experts], out float32 [batch, chosen, hidden],
    contiguous; batch 2..64. Slots of experts that other ranks hold are not written. Launched with
    overlap, it must come after `ExpertsGateUp` on the same logits.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a tile of more than one split or below
            16 x 16.
    """

    x: torch.Tensor
    experts: Experts
    logits: torch.Tensor
    out: torch.Tensor
    tile: Tile

    def launch(self, pdl: bool = False) -> Launch:
        x, experts, tile = self.x, self.experts, self.tile
        batch, hidden, device = len(x), experts.router.columns, x.device
        if not 2 <= batch <= MAX_BATCH:
            raise ValueError(f"x {list(x.shape)}: must have 2 to {MAX_BATCH} tokens")
        check_floats("x", x, (batch, experts.chosen, experts.intermediate), device)
        check_floats("logits", self.logits, (batch, experts.count), device)
        check_tensor("out", self.out, (batch, experts.chosen, hidden), torch.float32, device)
        check_unsplit(tile)
        return launch(
            _experts_down_products_kernel,
            (triton.cdiv(hidden, tile.rows), experts.held),
            x,
            self.logits,
            experts.correction,
            *experts.down.operands(batch),
            self.out,
            N=hidden,
            EXPERTS=experts.count,
            FIRST=experts.first,
            CHOSEN=experts.chosen,
            **product_options(x[:, 0], experts.down, tile, pdl),
        )

    def inputs(self, position: int) -> Tensors:
        return self.x, self.logits, *self.weights

    @property
    def weights(self) -> Tensors:
        return self.experts.read(self.experts.down, len(self.x))

    def reference(self, position: int) -> Tensors:
        return (used_products(self.x, self.experts.down, self.experts, self.logits),)
