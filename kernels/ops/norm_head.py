"""Final norm, lm_head and greedy choice: the next token and the next position, in one launch.

Bytes moved: the head's weights once, x and the norm's weight once, one token for each sequence. The
logits, which the launches it replaces write and read, stay in registers unless they are requested.

Each program offers the largest logit of its rows to an atomic maximum, as one integer of value and
index (`device/choice.py`), so that the result does not depend on the order of the programs. The
last program to arrive writes the token and advances the position.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import batched_product, vector_product
from decodescope.kernels.device.activations import soft_capped
from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import group_scale_places, program_rows, scale_and_bias
from decodescope.kernels.host.checks import check_position, check_tensor, goes_with
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.product import NormedProduct
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.linear import linear_reference

_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def _norm_head_kernel(
    x_ptr,
    x_scale_ptr,
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
    capacity,
    cap,
    V: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    DTYPE: tl.constexpr,
    FIRST: tl.constexpr,
    CHOOSE: tl.constexpr,
    FINISHES: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    w_ptr, inside, rows = program_rows(w_ptr, tl.program_id(0), V, LAYOUT[0], ROWS)
    mask = rows < V
    first = vector_product.first_blocks(w_ptr, inside, g_ptr, 0, K, BLOCK, 1, AHEAD, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, mask)
    wait_for_previous(PDL)
    sums = vector_product.vector_products(
        first, w_ptr, inside, x_ptr, x_scale_ptr, g_ptr, eps, 0, K, BLOCK, 1, AHEAD, LAYOUT
    )
    sums = sums * scale + bias
    if cap is not None:
        sums = soft_capped(sums, cap)
    # transformers chooses among logits of the model's dtype; ties there go to the lowest index.
    logits = sums.to(DTYPE).to(tl.float32)
    if logits_ptr is not None:
        tl.store(logits_ptr + rows, logits, mask=mask)
    if CHOOSE:
        keys = tl.where(mask, choice_keys(logits, FIRST + rows), NO_KEY)
        tl.atomic_max(key_ptr, tl.max(keys, axis=0), sem="relaxed")
    if CHOOSE and FINISHES:
        arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
        if arrived == tl.num_programs(0) - 1:
            key = tl.atomic_max(key_ptr, NO_KEY, sem="relaxed")
            position = tl.load(position_ptr)
            if (position >= 0) & (position < capacity):
                tl.store(tokens_ptr + position + 1, chosen_index(key))
            tl.store(position_ptr, position + 1)
            tl.store(key_ptr, NO_KEY)
            tl.store(counter_ptr, 0)


@triton.jit
def _norm_head_batched_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    group_scale_ptr,
    logits_ptr,
    tokens_ptr,
    position_ptr,
    key_ptr,
    counter_ptr,
    eps,
    capacity,
    cap,
    V: tl.constexpr,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    DTYPE: tl.constexpr,
    FIRST: tl.constexpr,
    CHOOSE: tl.constexpr,
    FINISHES: tl.constexpr,
    WORDS: tl.constexpr,
    num_stages: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    w_ptr, inside, rows = program_rows(w_ptr, tl.program_id(0), V, LAYOUT[0], ROWS)
    batched_product.prefetch_rows(w_ptr, inside, 0, K, BLOCK, 1, PDL, LAYOUT)
    mask = (rows < V)[:, None]
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], mask)
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
    if cap is not None:
        sums = soft_capped(sums, cap)
    logits = sums.to(DTYPE).to(tl.float32)
    token = tl.arange(0, TOKENS)
    present = token < BATCH
    if logits_ptr is not None:
        logit_places = logits_ptr + token[None, :] * V + rows[:, None]
        tl.store(logit_places, logits, mask=mask & present[None, :])
    if CHOOSE:
        keys = tl.where(mask, choice_keys(logits, FIRST + rows[:, None]), NO_KEY)
        tl.atomic_max(key_ptr + token, tl.max(keys, axis=0), mask=present, sem="relaxed")
    if CHOOSE and FINISHES:
        # One thread counts for all: their offers must be done.
        tl.debug_barrier()
        if tl.atomic_add(counter_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
            best = tl.load(key_ptr + token, mask=present, other=0, cache_modifier=".cg")
            position = tl.load(position_ptr)
            places = tokens_ptr + token * (capacity + 1) + tl.minimum(position, capacity - 1) + 1
            fits = (position >= 0) & (position < capacity)
            tl.store(places, chosen_index(best), mask=token < tl.where(fits, BATCH, 0))
            # Every thread has read the keys and the position before one of them overwrites them.
            tl.debug_barrier()
            tl.store(key_ptr + token, tl.full(token.shape, NO_KEY, tl.int64), mask=present)
            tl.store(position_ptr, position + 1)
            tl.store(counter_ptr, 0)


@dataclass(frozen=True, slots=True)
class NormHead(NormedProduct):
    """tokens[b, position + 1] = argmax over v of H[v] . n[b], the lowest v of equal ones; then
    position += 1. n = RMSNorm(x), or x where `norm` is None.

    x [batch, hidden], contiguous, batch 1..64; or x E4M3 with `x_scale` and FP8 weights
    (`Product`); tokens int64 [batch, capacity + 1]; position int32 [1]. At a position outside
    `tokens` no token is written, and the position still advances. The logits, rounded to the
    model's `dtype` (None: x's) as transformers rounds them, are written to `logits` (float32
    [batch, vocabulary]) if given; with `choose` off nothing else happens. With a `cap` a logit y
    becomes cap * tanh(y / cap). Of a head that ranks share, H has the rows from `first` on; unless
    it `finishes`, the best keys stay in the workspace, for `AllReduceChoice`.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, too small a workspace, a tile of more
            than one split, for a batch a tile below 16 x 16, or nothing to do: no `logits` and
            `choose` off.
    """

    x: torch.Tensor
    norm: Norm | None
    head: WeightMatrix
    tokens: torch.Tensor
    position: torch.Tensor
    tile: Tile
    workspace: Workspace
    logits: torch.Tensor | None = None
    choose: bool = True
    x_scale: torch.Tensor | None = None
    dtype: torch.dtype | None = None
    cap: float | None = None
    first: int = 0
    finishes: bool = True

    def launch(self, pdl: bool = False) -> Launch:
        x, head, tokens, logits = self.x, self.head, self.tokens, self.logits
        batch = self.checked_batch(head)
        if tokens.dim() != 2 or tokens.shape[1] < 1:
            raise ValueError(f"tokens {list(tokens.shape)}: must be [{batch}, capacity + 1]")
        check_tensor("tokens", tokens, (batch, int(tokens.shape[1])), torch.int64, x.device)
        check_position(self.position, x.device)
        if logits is not None:
            check_tensor("logits", logits, (batch, head.rows), torch.float32, x.device)
        if logits is None and not self.choose:
            raise ValueError("neither logits nor a choice: nothing to do")
        dtype = self.dtype or x.dtype
        if not goes_with(x, dtype):
            raise ValueError(f"dtype {self.dtype} with x of {x.dtype}: must be the model's")
        self.workspace.check(0, 1, x.device)
        return self.launched(
            (_norm_head_kernel, _norm_head_batched_kernel),
            triton.cdiv(head.rows, self.tile.rows),
            head,
            (logits, tokens, self.position, self.workspace.keys, self.workspace.counters),
            (int(tokens.shape[1]) - 1, self.cap),
            pdl,
            V=head.rows,
            DTYPE=_DTYPES[dtype],
            FIRST=self.first,
            CHOOSE=self.choose,
            FINISHES=self.finishes,
        )

    def outputs(self, position: int) -> Tensors:
        return (self.tokens[:, position + 1],) if self.logits is None else (self.logits,)

    def reference(self, position: int) -> Tensors:
        """The logits, not the chosen tokens."""
        logits = linear_reference(self.values, self.head, self.norm)
        return (logits if self.cap is None else self.cap * (logits / self.cap).tanh(),)
