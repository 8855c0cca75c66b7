"""Attention over parts of the KV length (flash-decoding): how many parts there are, which rows each
part has, and how their results are combined.

A split computes, for each query head, the largest score m, the sum l of exp2(score - m) and the sum
acc [D] of exp2(score - m) * value. It stores the sums relative to ceil(m) instead of m. With M the
largest ceil(m): out = sum exp2(ceil(m) - M) acc / sum exp2(ceil(m) - M) l. The new row belongs to
no split: it is combined as one more part.

Weights that are powers of two make their products exact, so that a reduction over splits gives all
threads the same sum. Otherwise each thread would fuse its own product with the addition of the
other's, which is rounded, and the sums would differ by thread (triton-lang/triton#7264).

Extra programs of the same launch wait for the splits and combine them. A split only increments a
counter and ends, which frees its registers for the next kernel's weights; if the last split
combined, every split would wait for its counter to return. The waiting programs have the highest
numbers, so they start last in practice. CUDA guarantees no order, so there are fewer of them than
multiprocessors: splits can always run. While they wait they load the new row, so that splits have
only q to load after the wait for the previous kernel.

Source: Flash-Decoding, https://pytorch.org/blog/flash-decoding/; CUTLASS' serial split-K waits for
programs of the same launch in the same way (cutlass/semaphore.h).
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from decodescope.kernels.device.attention_blocks import head_scale, operand, row_scores, sink_scores
from decodescope.kernels.device.elements import as_float32, rounded

MAX_SPLITS = 64
MIN_SPLIT = 128

MAX_COMBINING_PROGRAMS = 64
_MAX_COUNTERS_PER_HEAD = 2

# 128 registers of a thread: one round of the combination has this many partial sums in flight.
_FLOATS_PER_WARP = 128 * 32


def default_splits(capacity: int, batch: int, kv_heads: int, resident_programs: int) -> int:
    """Splits of a KV cache of `capacity` positions: a power of two up to 64, of at least 128
    positions each, so that all programs (batch * kv_heads * splits) are resident at once."""
    most = min(resident_programs // (batch * kv_heads), capacity // MIN_SPLIT, MAX_SPLITS)
    return 1 << max(0, most.bit_length() - 1) if most > 0 else 1


def attention_workspace(batch: int, heads: int, head_dim: int, splits: int) -> tuple[int, int]:
    """Floats and, at most, counters of workspace that a launch needs; `heads` are query heads."""
    if splits == 1:
        return 0, 0
    return batch * heads * splits * (head_dim + 2), batch * heads * _MAX_COUNTERS_PER_HEAD


@dataclass(frozen=True, slots=True)
class Combination:
    """`programs` programs combine splits, one piece at a time: `heads` query heads (a power of two)
    of one KV head and `width` of their padded values. A KV head has `pieces` pieces with a counter
    each."""

    heads: int
    width: int
    pieces: int
    programs: int

    @property
    def constants(self) -> dict[str, int]:
        """The attention kernel's compile-time constants."""
        return {
            "COMBINING_PROGRAMS": self.programs,
            "COMBINED_HEADS": self.heads,
            "COMBINED_WIDTH": self.width,
            "PIECES": self.pieces,
            "COUNTERS": int(triton.next_power_of_2(self.pieces)),
        }


def combination(
    batch: int,
    kv_heads: int,
    group: int,
    padded_dim: int,
    splits: int,
    num_warps: int,
    multiprocessors: int,
) -> Combination:
    """The smallest pieces, down to half a query head, such that every program has one.

    There are at most `MAX_COMBINING_PROGRAMS` programs, and fewer than multiprocessors (but at
    least one). If there are still more pieces than programs, programs take several in turn. `group`
    query heads share a KV head; `padded_dim` is head_dim rounded up to a power of two.
    """
    if splits == 1:
        return Combination(heads=1, width=padded_dim, pieces=1, programs=0)
    fitting = _FLOATS_PER_WARP * num_warps // (triton.next_power_of_2(splits) * padded_dim)
    most_heads = max(1, min(int(triton.next_power_of_2(group)), fitting))
    most_programs = max(1, min(MAX_COMBINING_PROGRAMS, multiprocessors - 1))
    heads, width = 1, padded_dim // _MAX_COUNTERS_PER_HEAD
    while True:
        pieces = -(-group // heads) * (padded_dim // width)
        programs = batch * kv_heads * pieces
        if programs <= most_programs or (width == padded_dim and heads == most_heads):
            return Combination(heads, width, pieces, min(programs, most_programs))
        heads, width = (heads, padded_dim) if width < padded_dim else (2 * heads, width)


@triton.jit
def rows_of_split(first, end, split, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """First row and end of a split's share of [first, end): shares are even, in whole blocks except
    for the last one. The first row of an empty share is at its end or after it."""
    blocks = tl.cdiv(end - first, BLOCK)
    share = blocks // SPLITS
    longer = blocks % SPLITS
    first += (split * share + tl.minimum(split, longer)) * BLOCK
    share += (split < longer).to(tl.int32)
    return first, tl.minimum(first + share * BLOCK, end)


@triton.jit
def store_split(
    partials_ptr,
    m,
    l,  # noqa: E741
    acc,
    kv_head,
    kv_heads,
    split,
    query,
    lane,
    inside,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Store a split's state in the workspace: acc [kv_heads, SPLITS, GROUP, D], then ceil(m) and l
    [kv_heads, SPLITS, GROUP]; acc and l are relative to ceil(m)."""
    anchor = tl.ceil(m)
    # Without a single visible row, -inf - -inf would be NaN.
    scale = tl.exp2(m - tl.where(m == float("-inf"), 0.0, anchor))
    row = (kv_head * SPLITS + split) * GROUP + query
    rows = kv_heads * SPLITS * GROUP
    tl.store(partials_ptr + row[:, None] * D + lane[None, :], acc * scale[:, None], mask=inside)
    tl.store(partials_ptr + rows * D + row, anchor, mask=query < GROUP)
    tl.store(partials_ptr + rows * (D + 1) + row, l * scale, mask=query < GROUP)


@triton.jit
def _power_of_2(exponent):
    """2^exponent, exactly, for integers up to 0; 0 below the range of normal numbers."""
    biased = tl.maximum(exponent, -127.0).to(tl.int32) + 127
    return (biased << 23).to(tl.float32, bitcast=True)


@triton.jit
def count_in(counter_ptr, PIECES: tl.constexpr, COUNTERS: tl.constexpr):
    """Count that a split of these counters' KV head has stored its state. COUNTERS is PIECES
    rounded up to a power of two."""
    # One thread counts for all: their stores must be done.
    tl.debug_barrier()
    piece = tl.arange(0, COUNTERS)
    tl.atomic_add(counter_ptr + piece, 1, mask=piece < PIECES, sem="release")


@triton.jit
def combine_when_counted(
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
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    LANES: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLIT_ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Compute one piece of out [kv_heads * GROUP, D] from the row at `position` and, as soon as
    every split has counted, from the states of `store_split`; stores the first `written` query
    heads of each KV head.

    All splits are loaded at once: one trip to L2 instead of one for each split.
    """
    kv_head = piece // PIECES
    query = piece % PIECES // (LANES // WIDTH) * HEADS + tl.arange(0, HEADS)
    lane = piece % (LANES // WIDTH) * WIDTH + tl.arange(0, WIDTH)
    every = tl.arange(0, LANES)
    inside = (query < GROUP)[:, None] & (lane < D)[None, :]
    row = (kv_head.to(tl.int64) * capacity + position) * D
    # .cg: L1 may still hold part of this row from before the wait, if the last row shares its line.
    k_new = tl.load(k_ptr + row + every, mask=every < D, other=0.0, cache_modifier=".cg")
    v_new = tl.load(v_ptr + row + lane, mask=lane < D, other=0.0, cache_modifier=".cg")
    q = tl.load(
        q_ptr + (kv_head * GROUP + query[:, None]) * D + every[None, :],
        mask=(query < GROUP)[:, None] & (every < D)[None, :],
        other=0.0,
    )
    q = operand(q, k_ptr.dtype.element_ty)
    v_scale = head_scale(v_scale_ptr, kv_head)
    score = row_scores(q, k_new, scale_log2 * head_scale(k_scale_ptr, kv_head), cap_log2)
    anchor = tl.ceil(score)
    share = tl.exp2(score - anchor)
    # Of no row: it adds to the sum of shares alone.
    sink = sink_scores(sink_ptr, kv_head % KV_HEADS * GROUP + query, query < GROUP)
    sink_anchor = tl.ceil(sink)

    counter_ptr += piece
    arrived = tl.atomic_add(counter_ptr, 0, sem="acquire")
    while arrived < SPLITS:
        arrived = tl.atomic_add(counter_ptr, 0, sem="acquire")
    split = tl.arange(0, SPLIT_ROWS)
    rows = kv_heads * SPLITS * GROUP
    part = (kv_head * SPLITS + split[:, None]) * GROUP + query[None, :]
    there = (split[:, None] < SPLITS) & (query[None, :] < GROUP)
    # .cg reads L2, where the other programs' stores are.
    m = tl.load(
        partials_ptr + rows * D + part, mask=there, other=float("-inf"), cache_modifier=".cg"
    )
    l = tl.load(  # noqa: E741
        partials_ptr + rows * (D + 1) + part, mask=there, other=0.0, cache_modifier=".cg"
    )
    acc = tl.load(
        partials_ptr + part[:, :, None] * D + lane[None, None, :],
        mask=there[:, :, None] & (lane < D)[None, None, :],
        other=0.0,
        cache_modifier=".cg",
    )
    largest = tl.maximum(tl.max(m, axis=0), anchor)
    if sink_ptr is not None:
        largest = tl.maximum(largest, sink_anchor)
    weight = _power_of_2(m - largest[None, :])
    share *= _power_of_2(anchor - largest)
    total = tl.sum(weight * l, axis=0) + share
    if sink_ptr is not None:
        total += tl.exp2(sink - largest)
    out = tl.sum(weight[:, :, None] * acc, axis=0) + share[:, None] * as_float32(v_new)[None, :]
    tl.store(
        out_ptr + (kv_head * GROUP + query[:, None]) * D + lane[None, :],
        rounded(out * v_scale / total[:, None], out_ptr.dtype.element_ty),
        mask=inside & (query < written)[:, None],
    )
    tl.store(counter_ptr, 0)
