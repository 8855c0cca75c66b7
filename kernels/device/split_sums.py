"""Sums that several programs share: each writes its part, and the last one to arrive adds them."""

import triton
import triton.language as tl


@triton.jit
def split_sums(sums, partial_ptr, counter_ptr, block, split, SPLITS: tl.constexpr):
    """The sum of all splits' `sums` [R, C] (float32), and whether this program is the one that has
    it, the last one of its block to arrive.

    Each split writes its part to the workspace, blocks * R * C floats for each split. The last one
    to arrive adds the parts in the order of the splits, so that the same inputs give the same bits,
    and resets the block's counter. Programs are (block, split).
    """
    finishes = True
    if SPLITS > 1:
        rows: tl.constexpr = sums.shape[0]
        columns: tl.constexpr = sums.shape[1]
        size = tl.num_programs(0) * (rows * columns)
        row, column = tl.arange(0, rows), tl.arange(0, columns)
        places = partial_ptr + block * (rows * columns) + row[:, None] * columns + column[None, :]
        tl.store(places + split * size, sums)
        # One thread counts for all: their stores must be done.
        tl.debug_barrier()
        finishes = tl.atomic_add(counter_ptr + block, 1, sem="acq_rel") == SPLITS - 1
        if finishes:
            sums = tl.zeros_like(sums)
            for part in tl.static_range(SPLITS):
                sums += tl.load(places + part * size)
            tl.store(counter_ptr + block, 0)
    return sums, finishes
