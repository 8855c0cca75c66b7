"""Draws one of the kept tokens: the largest of logit / temperature plus Gumbel noise.

Programs offer their best token to an atomic maximum of integers, so the result does not depend on
their order; the last program to arrive writes the token.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.sampling.numbers import gumbel_noise, logit_keys, program_logits
from decodescope.kernels.sampling.workspace import (
    BEST,
    BIN,
    BORDER,
    FIRST_TIED,
    HALF,
    LARGEST,
    LOWER_BINS,
    SLOTS,
    TOTAL,
    arrived_last,
    clear_lower,
)


@triton.jit(do_not_specialize=["seed"])
def draw_kernel(
    logits_ptr,
    lower_ptr,
    state_ptr,
    counters_ptr,
    position_ptr,
    out_ptr,
    vocabulary,
    out_columns,
    inverse_temperature,
    seed,
    HISTORY: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """With HISTORY, `out` holds tokens by position and the position advances; else ids alone.

    Without filters, lower_ptr is None and every token is kept.
    """
    allow_next(PDL)
    wait_for_previous(PDL)
    tokens, kept, scaled = program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK)
    sequence = tl.program_id(1).to(tl.int64)
    state_ptr += sequence * SLOTS
    if lower_ptr is not None:
        keys = logit_keys(scaled)
        border = tl.load(state_ptr + BORDER)
        filled = kept & ((keys >> HALF) == tl.load(state_ptr + BIN))
        clear_lower(lower_ptr + sequence * LOWER_BINS, keys, filled)
        tied = (keys == border) & (tokens >= tl.load(state_ptr + FIRST_TIED))
        kept &= (keys > border) | tied
    position = tl.load(position_ptr)
    noise = gumbel_noise(seed, position, tl.program_id(1), tl.program_id(0) * BLOCK, BLOCK)
    scores = tl.where(kept, choice_keys(scaled + noise, tokens), NO_KEY)
    tl.atomic_max(state_ptr + BEST, tl.max(scores), sem="relaxed")
    if arrived_last(counters_ptr + sequence, tl.num_programs(0)):
        token = chosen_index(tl.atomic_xchg(state_ptr + BEST, NO_KEY, sem="relaxed"))
        tl.store(state_ptr + LARGEST, 0)
        tl.store(state_ptr + TOTAL, 0)
        if HISTORY:
            if (position >= 0) & (position < out_columns - 1):
                tl.store(out_ptr + sequence * out_columns + position + 1, token)
            if arrived_last(counters_ptr + tl.num_programs(1), tl.num_programs(1)):
                tl.store(position_ptr, position + 1)
        else:
            tl.store(out_ptr + sequence, token)
