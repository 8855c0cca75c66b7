"""Sums that several programs share: each writes its part, and the last one to arrive adds them."""

import triton
import triton.language as tl


@triton.jit
def split_sums(sums, partial_ptr, counter_ptr, offsets, present, split, size, SPLITS: tl.constexpr):
    """The sum of all splits' `sums` (float32), and whether this program is the one that has it.

    Each split writes its part to `partial_ptr` + split * `size` + `offsets`, where `present`. The
    last one to arrive adds the parts in the order of the splits, so that the same inputs give the
    same bits, and resets the counter, which the splits of one block share.
    """
    finishes = True
    if SPLITS > 1:
        tl.store(partial_ptr + split * size + offsets, sums, mask=present)
        # One thread counts for all: their stores must be done.
        tl.debug_barrier()
        finishes = tl.atomic_add(counter_ptr, 1, sem="acq_rel") == SPLITS - 1
        if finishes:
            sums = tl.zeros_like(sums)
            for part in tl.static_range(SPLITS):
                sums += tl.load(partial_ptr + part * size + offsets, mask=present, other=0.0)
            tl.store(counter_ptr, 0)
    return sums, finishes
