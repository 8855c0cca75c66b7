"""Final norm, lm_head and greedy choice: the next token and the next position, in one launch.

Bytes moved: the head's weights once, x and the norm's weight once, one token. The logits, which the
replaced launches write and read again, stay in registers unless they are asked for.

Each program takes the largest logit of its rows and offers it to an atomic maximum, as one integer
of value and index (`choice`), so that the result does not depend on who comes first. The last
program to arrive writes the token and moves the position on.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import choice_keys, chosen_index
from decodescope.kernels.device.overlap import launch_options
from decodescope.kernels.device.vector_product import blocks_ahead, products
from decodescope.kernels.host.checks import (
    check_activations,
    check_norm,
    check_position,
    check_tensor,
    check_unsplit,
)
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, finished
from decodescope.kernels.host.workspace import NO_KEY, Workspace
from decodescope.kernels.ops.batched import norm_head as batched
from decodescope.kernels.ops.rms_norm import normed_reference


def norm_head_reference(x: torch.Tensor, norm: Norm | None, head: WeightMatrix) -> torch.Tensor:
    """Logits in float64 [batch, vocabulary]. x [batch, hidden]."""
    logits = normed_reference(x, norm) @ head.dense().T
    return logits if head.bias is None else logits + head.bias.double()


@triton.jit
def _norm_head_kernel(
    x_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    logits_ptr,
    tokens_ptr,
    position_ptr,
    key_ptr,
    counter_ptr,
    eps,
    V,
    last_position,
    NO_KEY: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    NORM: tl.constexpr,
    LOGITS: tl.constexpr,
    CHOOSE: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    PDL: tl.constexpr,
):
    lane = tl.arange(0, ROWS)
    first = tl.program_id(0) * ROWS
    inside = tl.minimum(lane, V - 1 - first)
    w_ptr += first.to(tl.int64) * K
    sums, square_sum = products(w_ptr, inside, x_ptr, g_ptr, 0, K, BLOCK, 1, AHEAD, NORM, PDL)
    if NORM:
        sums *= tl.rsqrt(square_sum / K + eps)
    rows = first + lane
    mask = rows < V
    sums = finished(sums, scale_ptr, bias_ptr, rows, mask, SCALED, BIASED)
    # transformers chooses among logits of the model's dtype; ties there go to the lowest index.
    sums = sums.to(x_ptr.dtype.element_ty).to(tl.float32)
    if LOGITS:
        tl.store(logits_ptr + rows, sums, mask=mask)
    if CHOOSE:
        keys = tl.where(mask, choice_keys(sums, rows), NO_KEY)
        tl.atomic_max(key_ptr, tl.max(keys, axis=0), sem="relaxed")
        arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
        if arrived == tl.num_programs(0) - 1:
            key = tl.atomic_max(key_ptr, NO_KEY, sem="relaxed")
            position = tl.load(position_ptr)
            if (position >= 0) & (position < last_position):
                tl.store(tokens_ptr + position + 1, chosen_index(key))
            tl.store(position_ptr, position + 1)
            tl.store(key_ptr, NO_KEY)
            tl.store(counter_ptr, 0)


def norm_head(
    x: torch.Tensor,
    norm: Norm | None,
    head: WeightMatrix,
    tokens: torch.Tensor,
    position: torch.Tensor,
    tile: Tile,
    workspace: Workspace,
    logits: torch.Tensor | None = None,
    choose: bool = True,
    pdl: bool = False,
) -> Launch:
    """tokens[b, position + 1] = argmax over v of H[v] . n[b], the lowest v of equal ones; then
    position += 1. n = RMSNorm(x), or x where `norm` is None.

    x [batch, hidden], contiguous, batch 1..16; tokens int64 [batch, capacity + 1]; position int32
    [1]; outside the history no token is written. The logits, rounded to x's dtype as transformers
    rounds them, are written to `logits` (float32 [batch, vocabulary]) if given; with `choose` off
    that is all that happens.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, too small a workspace, a tile of more
            than one split, or nothing to do: no `logits` and `choose` off.
    """
    batch = _check(x, norm, head, tokens, position, workspace, logits, choose)
    check_unsplit(tile)
    if batch > 1:
        return batched.norm_head(
            x, norm, head, tokens, position, tile, workspace, logits, choose, pdl
        )
    return launch(
        _norm_head_kernel,
        (triton.cdiv(head.rows, tile.rows),),
        x,
        None if norm is None else norm.weight,
        head.data,
        head.scale,
        head.bias,
        logits,
        tokens,
        position,
        workspace.keys,
        workspace.counters,
        0.0 if norm is None else norm.eps,
        head.rows,
        int(tokens.shape[1]) - 1,
        NO_KEY=NO_KEY,
        K=head.columns,
        ROWS=tile.rows,
        BLOCK=tile.columns,
        AHEAD=blocks_ahead(head.columns, tile),
        NORM=norm is not None,
        LOGITS=logits is not None,
        CHOOSE=choose,
        SCALED=head.scale is not None,
        BIASED=head.bias is not None,
        PDL=pdl,
        num_warps=tile.num_warps,
        **launch_options(pdl),
    )


def _check(
    x: torch.Tensor,
    norm: Norm | None,
    head: WeightMatrix,
    tokens: torch.Tensor,
    position: torch.Tensor,
    workspace: Workspace,
    logits: torch.Tensor | None,
    choose: bool,
) -> int:
    """The batch, if all is as `norm_head` demands and there is something to do."""
    batch = check_activations(x, head.columns, head.data.device)
    if tokens.dim() != 2 or tokens.shape[1] < 1:
        raise ValueError(f"tokens {list(tokens.shape)}: must be [{batch}, capacity + 1]")
    check_tensor("tokens", tokens, (batch, int(tokens.shape[1])), torch.int64, x.device)
    check_position(position, x.device)
    if logits is not None:
        check_tensor("logits", logits, (batch, head.rows), torch.float32, x.device)
    if logits is None and not choose:
        raise ValueError("neither logits nor a choice were asked for")
    check_norm(norm, head.columns, x.device)
    workspace.check(0, 1, x.device)
    return batch
