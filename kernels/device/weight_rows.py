"""Which rows of a weight matrix a program has, and how their sums become outputs."""

import triton
import triton.language as tl


@triton.jit
def program_rows(w_ptr, program, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr):
    """A program's ROWS rows of W [N, K]: a pointer to the first, their numbers from there, and
    their numbers in W, which may reach past N.

    From the pointer, rows past the end repeat the last one instead of being masked: loads stay wide
    and plain. The pointer is advanced in 64 bits, because W may have more than 2^31 elements.
    Without rows past the end, the numbers are constants, and so are the distances of the loads.
    """
    lane = tl.arange(0, ROWS)
    first = program * ROWS
    w_ptr += first.to(tl.int64) * K
    inside = lane
    if N % ROWS != 0:
        inside = tl.minimum(lane, N - 1 - first)
    return w_ptr, inside, first + lane


@triton.jit
def program_pairs(w_ptr, first, HALF: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr):
    """Rows that alternate between [0, HALF) and [HALF, 2 HALF) of W, from pair `first` on: a
    pointer to the first, their numbers from there, and their numbers in W.

    Rows past the end repeat the last pair.
    """
    lane = tl.arange(0, ROWS)
    pair = lane // 2
    if HALF % (ROWS // 2) != 0:
        pair = tl.minimum(pair, HALF - 1 - first)
    second = lane % 2
    rows = first + pair + second * HALF
    if (HALF + ROWS // 2) * K >= 2**31:
        second = second.to(tl.int64)
    return w_ptr + first.to(tl.int64) * K, pair + second * HALF, rows


@triton.jit
def scale_and_bias(scale_ptr, bias_ptr, rows, mask):
    """The scales and biases of `rows` in float32, 1 and -0 where there are none. No earlier kernel
    writes them: loaded before the product, they cost no latency after it."""
    scale = 1.0 if scale_ptr is None else tl.load(scale_ptr + rows, mask=mask)
    # x + 0 is not x for -0, so that the compiler would keep the addition, and Triton writes -0.0
    # as 0.
    no_bias = tl.full((), 1 << 31, tl.uint32).to(tl.float32, bitcast=True)
    bias = no_bias if bias_ptr is None else tl.load(bias_ptr + rows, mask=mask).to(tl.float32)
    return scale, bias


@triton.jit
def group_scale_places(group_scale_ptr, rows, LAYOUT: tl.constexpr):
    """Where the first words of `WeightMatrix.group_scales` of `rows` are, None if there are none.
    Rows past the end repeat the last one."""
    places = None
    if group_scale_ptr is not None:
        places = group_scale_ptr + tl.minimum(rows, LAYOUT[3] - 1)
    return places


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
