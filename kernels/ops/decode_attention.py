"""Attention of one new token per sequence over its KV cache, split over the KV length.

Each query head may have a sink: a logit of the softmax that has no row, and adds to its sum alone.

Bytes moved: the visible rows of K and V once, 2 * batch * kv_heads * visible * D elements, plus q
and out. All query heads of a KV head share one program, so that its rows are read once for all.

The position is on the device and the grid does not depend on it: one captured CUDA graph serves
every position. The previous kernel writes the new token's row, so that row is handled separately.
The rows of earlier steps are safe to read while that kernel still runs: a program loads its first
block of them into registers before it waits.

Sources: Flash-Decoding, https://pytorch.org/blog/flash-decoding/; FlashAttention-2
(arXiv 2307.08691) for the running softmax; GQA packing as in FlashInfer (arXiv 2501.01005).
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.attention_blocks import (
    attend_block,
    cache_block,
    halves,
    head_scale,
    joined,
    later_block,
    operand,
    row_scores,
    sink_scores,
    words,
)
from decodescope.kernels.device.attention_splits import (
    MAX_COMBINING_PROGRAMS,
    MAX_SPLITS,
    attention_workspace,
    combination,
    combine_when_counted,
    count_in,
    rows_of_split,
    store_split,
)
from decodescope.kernels.device.elements import as_float32, rounded
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_floats, check_output, check_position, check_tensor
from decodescope.kernels.host.kv_cache import KvScales, check_caches, dense_rows
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.workspace import MAX_BATCH, Workspace


def decode_attention_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    position: int,
    scale: float,
    window: int | None = None,
    scales: KvScales | None = None,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(scale q K^T) V over the visible rows up to `position`, in float64 [B, heads, D]; with
    a soft cap of the scores if `cap` is given."""
    first = 0 if window is None else max(0, position - window + 1)
    group = q.shape[1] // k_cache.shape[1]
    k, v = (
        dense_rows(cache[:, :, first : position + 1], scales_of).repeat_interleave(group, dim=1)
        for cache, scales_of in zip((k_cache, v_cache), scales or (None, None), strict=True)
    )
    scores = scale * torch.einsum("bhd,bhtd->bht", q.double(), k)
    if cap is not None:
        scores = cap * (scores / cap).tanh()
    if sinks is not None:
        sink_scores = sinks.double().expand(len(q), -1)[..., None]
        scores = torch.cat((scores, sink_scores), dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[2]]
    return torch.einsum("bht,bhtd->bhd", weights, v)


@triton.jit
def _decode_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    sink_ptr,
    position_ptr,
    out_ptr,
    partials_ptr,
    counter_ptr,
    kv_heads,
    capacity,
    window,
    scale_log2,
    cap_log2,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    LATER_BLOCK: tl.constexpr,
    LATER_STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLIT_ROWS: tl.constexpr,
    COMBINING_PROGRAMS: tl.constexpr,
    COMBINED_HEADS: tl.constexpr,
    COMBINED_WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
    COUNTERS: tl.constexpr,
    NUM_WARPS: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    program = tl.program_id(0)
    position = tl.load(position_ptr)
    writes = (position >= 0) & (position < capacity)
    position = tl.where(writes, position, 0)
    # At a position outside the cache no query head is written.
    written = tl.where(writes, GROUP, 0)
    if SPLITS > 1:
        combining = program - kv_heads * SPLITS
        if combining >= 0:
            # Until then the previous kernel may still use the workspace.
            wait_for_previous(PDL)
            for piece in range(combining, kv_heads * PIECES, COMBINING_PROGRAMS):
                combine_when_counted(
                    partials_ptr,
                    counter_ptr,
                    q_ptr,
                    k_ptr,
                    v_ptr,
                    k_scale_ptr,
                    v_scale_ptr,
                    sink_ptr,
                    out_ptr,
                    piece,
                    kv_heads,
                    capacity,
                    position,
                    written,
                    scale_log2,
                    cap_log2,
                    GROUP,
                    KV_HEADS,
                    D,
                    LANES,
                    SPLITS,
                    SPLIT_ROWS,
                    COMBINED_HEADS,
                    COMBINED_WIDTH,
                    PIECES,
                )
            return
    kv_head = program // SPLITS
    split = program % SPLITS
    lane = tl.arange(0, LANES)
    query = tl.arange(0, QUERIES)
    inside = (query < GROUP)[:, None] & (lane < D)[None, :]
    k_ptr += kv_head.to(tl.int64) * capacity * D
    v_ptr += kv_head.to(tl.int64) * capacity * D
    STORED: tl.constexpr = k_ptr.dtype.element_ty
    WORD: tl.constexpr = 2 if STORED.primitive_bitwidth == 8 else 1
    word = tl.arange(0, LANES // WORD)
    k_words, v_words = words(k_ptr), words(v_ptr)
    oldest = tl.maximum(position - window + 1, 0)
    first, end = rows_of_split(oldest, position, split, SPLITS, BLOCK)
    row = tl.arange(0, BLOCK)
    v = cache_block(v_words, first, end, capacity, word, D // WORD, BLOCK)
    k = cache_block(k_words, first, end, capacity, word, D // WORD, BLOCK)
    # Both are loaded before either is used. Without a second mask on V the compiler moves V's store
    # to shared memory, and so a wait for V, in front of the load of K.
    v = tl.where((first + row < end)[:, None], v, 0)
    scale_log2 *= head_scale(k_scale_ptr, kv_head)
    v_scale = head_scale(v_scale_ptr, kv_head)
    if SPLITS == 1:
        sink = sink_scores(sink_ptr, kv_head % KV_HEADS * GROUP + query, query < GROUP)

    wait_for_previous(PDL)
    heads = kv_head * GROUP * D + query[:, None] * D + lane[None, :]
    if SPLITS == 1:
        # All are loaded together: the first use, q's store to shared memory, follows q's load. .cg:
        # L1 may still hold part of this row from before the wait, if the last row shares its line.
        new = position * D + lane
        v_new = tl.load(v_ptr + new, mask=lane < D, other=0.0, cache_modifier=".cg")
        k_new = tl.load(k_ptr + new, mask=lane < D, other=0.0, cache_modifier=".cg")
        q = operand(tl.load(q_ptr + heads, mask=inside, other=0.0), STORED)
        m = row_scores(q, k_new, scale_log2, cap_log2)
        l = tl.zeros((QUERIES,), tl.float32) + 1.0  # noqa: E741
        acc = tl.zeros((QUERIES, LANES), tl.float32) + as_float32(v_new)[None, :]
        if sink_ptr is not None:
            largest = tl.maximum(m, sink)
            share = tl.exp2(m - largest)
            l = share + tl.exp2(sink - largest)  # noqa: E741
            acc *= share[:, None]
            m = largest
    else:
        q = operand(tl.load(q_ptr + heads, mask=inside, other=0.0), STORED)
        m = tl.zeros((QUERIES,), tl.float32) + float("-inf")
        l = tl.zeros((QUERIES,), tl.float32)  # noqa: E741
        acc = tl.zeros((QUERIES, LANES), tl.float32)

    q, acc = halves(q, STORED), halves(acc, STORED)
    if first < end:
        visible = first + row < end
        m, l, acc = attend_block(q, k, v, visible, scale_log2, cap_log2, m, l, acc, STORED)  # noqa: E741
    if LATER_BLOCK > 0:
        later = tl.arange(0, LATER_BLOCK)
        # Without the test, programs with one block would compute the first copies' addresses too.
        if first + BLOCK < end:
            for start in tl.range(first + BLOCK, end, LATER_BLOCK, num_stages=LATER_STAGES):
                k_later = cache_block(k_words, start, end, capacity, word, D // WORD, LATER_BLOCK)
                v_later = cache_block(v_words, start, end, capacity, word, D // WORD, LATER_BLOCK)
                visible = start + later < end
                m, l, acc = attend_block(  # noqa: E741
                    q, k_later, v_later, visible, scale_log2, cap_log2, m, l, acc, STORED
                )

    acc = joined(acc)
    if SPLITS == 1:
        out = rounded(acc * (v_scale / l)[:, None], out_ptr.dtype.element_ty)
        tl.store(out_ptr + heads, out, mask=inside & (query < written)[:, None])
    else:
        store_split(
            partials_ptr, m, l, acc, kv_head, kv_heads, split, query, lane, inside, GROUP, D, SPLITS
        )
        count_in(counter_ptr + kv_head * PIECES, PIECES, COUNTERS)


@dataclass(frozen=True, slots=True)
class DecodeAttention(KernelOperation):
    """out = softmax(scale q K^T) V over the cache's rows [max(0, position - window + 1), position].

    q, out [batch, heads, D], caches [batch, kv_heads, capacity, D], contiguous, of one float dtype,
    or the caches of float8, with `scales` or without: then q and the softmax's weights are rounded
    to float16 (q beyond its range is its largest value), the sums stay float32. `check_output` says
    which other dtype out may have.
    heads is a multiple of kv_heads (KV head h serves query heads h * group and up), D is even, 32
    to 512, batch 1 to 64. `position` int32 [1] on the device: earlier steps wrote the rows before
    it, the previous kernel writes its own row, later rows are not read. At a position outside the
    cache nothing is written.

    `window` counts the tokens that a query sees, itself included (None: all). `tile.columns` is a
    block of KV positions, at least 16, and `tile.num_stages` is 1; `tile.splits` programs share a
    KV head and need a workspace of `attention_workspace` (attention_splits.py). With a `cap` a
    score s becomes cap * tanh(s / cap). `sinks` [heads], of q's dtype, are one more logit of each
    head's softmax.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, too small a workspace or block, more
            than `MAX_SPLITS` splits or one stage, a window below 1.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    position: torch.Tensor
    scale: float
    out: torch.Tensor
    tile: Tile
    workspace: Workspace
    window: int | None = None
    scales: KvScales | None = None
    cap: float | None = None
    sinks: torch.Tensor | None = None

    def launch(self, pdl: bool = False) -> Launch:
        q, tile = self.q, self.tile
        self._check()
        batch, heads, head_dim = q.shape
        kv_heads, capacity = self.k_cache.shape[1:3]
        group = heads // kv_heads
        needed = attention_workspace(batch, heads, head_dim, tile.splits)
        self.workspace.check(*needed, q.device)
        lanes = triton.next_power_of_2(head_dim)
        visible = capacity if self.window is None else min(self.window, capacity)
        multiprocessors = _multiprocessors(q.device)
        combined = combination(
            batch, kv_heads, group, lanes, tile.splits, tile.num_warps, multiprocessors
        )
        programs = batch * kv_heads * tile.splits + combined.programs
        return launch(
            _decode_attention_kernel,
            (programs,),
            q,
            self.k_cache,
            self.v_cache,
            *(self.scales or (None, None)),
            self.sinks,
            self.position,
            self.out,
            self.workspace.partials,
            self.workspace.counters,
            batch * kv_heads,
            capacity,
            visible,
            self.scale * math.log2(math.e),
            None if self.cap is None else self.cap * math.log2(math.e),
            GROUP=group,
            KV_HEADS=kv_heads,
            QUERIES=max(16, triton.next_power_of_2(group)),
            D=head_dim,
            LANES=lanes,
            BLOCK=tile.columns,
            # At batch 1 it was measured that later blocks pay where programs share multiprocessors.
            LATER_BLOCK=later_block(
                tile.columns, tile.splits, visible, batch == 1 and programs > multiprocessors
            ),
            # As many bytes of either: with float8, one block arrives while another one is used.
            LATER_STAGES=3 if self.k_cache.element_size() == 1 else 2,
            SPLITS=tile.splits,
            SPLIT_ROWS=triton.next_power_of_2(tile.splits),
            **combined.constants,
            NUM_WARPS=tile.num_warps,
            PDL=pdl,
            num_warps=tile.num_warps,
            num_stages=1,
        )

    def _check(self) -> None:
        q, k_cache, tile = self.q, self.k_cache, self.tile
        if q.dim() != 3 or k_cache.dim() != 4:
            raise ValueError(
                f"q {list(q.shape)}, k_cache {list(k_cache.shape)}: must be [batch, heads, D] and "
                "[batch, kv_heads, capacity, D]"
            )
        batch, heads, head_dim = (int(size) for size in q.shape)
        kv_heads, capacity = (int(size) for size in k_cache.shape[1:3])
        if not 1 <= batch <= MAX_BATCH or capacity < 1:
            raise ValueError(
                f"batch {batch}, capacity {capacity}: must be 1 to {MAX_BATCH}, 1 or more"
            )
        if kv_heads < 1 or heads % kv_heads or heads < 1:
            raise ValueError(f"{heads} heads: must be a multiple of {kv_heads} KV heads")
        if head_dim % 2 or not 32 <= head_dim <= 512:
            raise ValueError(f"head_dim {head_dim}: must be even, 32 to 512")
        check_floats("q", q, (batch, heads, head_dim), q.device)
        check_output("out", self.out, (batch, heads, head_dim), q)
        caches, shape = (k_cache, self.v_cache, self.scales), (batch, kv_heads, capacity, head_dim)
        check_caches(*caches, shape, q.dtype, q.device)
        check_position(self.position, q.device)
        if self.sinks is not None:
            check_tensor("sinks", self.sinks, (heads,), q.dtype, q.device)
        if capacity * head_dim >= 2**31:
            raise ValueError(
                f"{capacity} positions of {head_dim}: offsets in a head must fit in int32"
            )
        if self.window is not None and self.window < 1:
            raise ValueError(f"window {self.window}: must be at least 1, the new token itself")
        if tile.columns < 16:
            raise ValueError(f"blocks of {tile.columns} positions: must be at least 16")
        if tile.num_stages != 1:
            raise ValueError(
                f"tile of {tile.num_stages} stages: attention holds one block at a time"
            )
        if tile.splits > MAX_SPLITS:
            raise ValueError(f"tile of {tile.splits} splits: at most {MAX_SPLITS} are combined")

    def visible(self, position: int) -> int:
        """Rows of K and V that a query at `position` sees, its own included."""
        return position + 1 if self.window is None else min(position + 1, self.window)

    def inputs(self, position: int) -> Tensors:
        rows = slice(position + 1 - self.visible(position), position + 1)
        caches = self.k_cache[:, :, rows], self.v_cache[:, :, rows]
        return self.q, *caches, *(self.scales or ()), *self.weights

    @property
    def weights(self) -> Tensors:
        return () if self.sinks is None else (self.sinks,)

    def reference(self, position: int) -> Tensors:
        out = decode_attention_reference(
            self.q,
            self.k_cache,
            self.v_cache,
            position,
            self.scale,
            self.window,
            self.scales,
            self.cap,
            self.sinks,
        )
        return (out,)


def _multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU. The interpreter runs programs in order: none can block another."""
    if device.type != "cuda":
        return MAX_COMBINING_PROGRAMS + 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
