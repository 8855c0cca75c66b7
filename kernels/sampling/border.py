"""The border of top-k and top-p: the smallest logit that may still be drawn.

Radix select (Knuth, TAOCP 3, 5.2.5) over keys: 32-bit integers ordered like the logits. The upper
halves of all keys are counted in 65,536 bins; the last program to arrive searches from the largest
logit's bin downwards for the bin where the count reaches k. A second launch does the same for the
lower halves within this bin. Top-p adds probability mass instead of ones; mass is an integer, so
that sums do not depend on the order of the atomic additions.

Launches alternate between `upper` and `lower`, and each zeroes what the previous one filled.
Bytes moved: the logits once a launch, usually from the L2 cache, and the bins.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.sampling.numbers import (
    logit_keys,
    logit_of,
    probability_mass,
    program_logits,
    scaled_logits,
)
from decodescope.kernels.sampling.workspace import (
    ABOVE,
    BIN,
    BINS,
    BORDER,
    FIRST_TIED,
    GROUP,
    HALF,
    LARGEST,
    LOWER_BINS,
    SLOTS,
    TARGET,
    TOTAL,
    add_to_lower,
    arrived_last,
    clear_lower,
)

_BINS_AT_ONCE = tl.constexpr(2048)
_TOKENS_AT_ONCE = tl.constexpr(8192)


@triton.jit
def largest_kernel(
    logits_ptr, state_ptr, vocabulary, inverse_temperature, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    """LARGEST: the largest logit of each sequence, with no border yet, for top-p without top-k."""
    allow_next(PDL)
    wait_for_previous(PDL)
    _, _, scaled = program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK)
    state_ptr += tl.program_id(1).to(tl.int64) * SLOTS
    tl.atomic_max(state_ptr + LARGEST, tl.max(logit_keys(scaled)), sem="relaxed")
    if tl.program_id(0) == 0:
        tl.store(state_ptr + BORDER, 0)


@triton.jit(do_not_specialize=["top_k"])
def upper_half_kernel(
    logits_ptr,
    upper_ptr,
    lower_ptr,
    state_ptr,
    counters_ptr,
    vocabulary,
    inverse_temperature,
    top_k,
    top_p,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """BIN: the upper half of the border's key; with MASS for top-p, else for top-k."""
    allow_next(PDL)
    wait_for_previous(PDL)
    _, inside, scaled = program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK)
    sequence = tl.program_id(1).to(tl.int64)
    keys = logit_keys(scaled)
    state_ptr += sequence * SLOTS
    upper_ptr += sequence * BINS
    if MASS:
        weights = probability_mass(scaled, logit_of(tl.load(state_ptr + LARGEST)))
        weights = tl.where(inside & (keys >= tl.load(state_ptr + BORDER)), weights, 0)
        tl.atomic_add(state_ptr + TOTAL, tl.sum(weights), sem="relaxed")
        filled = inside & ((keys >> HALF) == tl.load(state_ptr + BIN))
        clear_lower(lower_ptr + sequence * LOWER_BINS, keys, filled)
    else:
        weights = inside.to(tl.int64)
        tl.atomic_max(state_ptr + LARGEST, tl.max(keys), sem="relaxed")
    tl.atomic_add(upper_ptr + (keys >> HALF), weights, mask=weights > 0, sem="relaxed")
    if arrived_last(counters_ptr + sequence, tl.num_programs(0)):
        # .cg: L1 does not see the other programs' atomic operations.
        if MASS:
            total = tl.load(state_ptr + TOTAL, cache_modifier=".cg").to(tl.float64)
            target = tl.ceil(total * tl.cast(top_p, tl.float64)).to(tl.int64)
        else:
            target = tl.cast(top_k, tl.int64)
        largest_bin = tl.load(state_ptr + LARGEST, cache_modifier=".cg") >> HALF
        border_bin, above = _bin_reaching(upper_ptr, largest_bin, target, _BINS_AT_ONCE)
        tl.store(state_ptr + BIN, border_bin)
        tl.store(state_ptr + ABOVE, above)
        tl.store(state_ptr + TARGET, target)


@triton.jit
def lower_half_kernel(
    logits_ptr,
    upper_ptr,
    lower_ptr,
    state_ptr,
    counters_ptr,
    vocabulary,
    inverse_temperature,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """BORDER, the border's whole key, and FIRST_TIED, the first token with this key to keep."""
    allow_next(PDL)
    wait_for_previous(PDL)
    _, counted, scaled = program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK)
    sequence = tl.program_id(1).to(tl.int64)
    keys = logit_keys(scaled)
    state_ptr += sequence * SLOTS
    lower_ptr += sequence * LOWER_BINS
    border_bin = tl.load(state_ptr + BIN)
    if MASS:
        largest = logit_of(tl.load(state_ptr + LARGEST))
        weights = probability_mass(scaled, largest)
        counted &= keys >= tl.load(state_ptr + BORDER)
    else:
        weights = counted.to(tl.int64)
    tl.store(upper_ptr + sequence * BINS + (keys >> HALF), weights * 0, mask=counted)
    counted &= ((keys >> HALF) == border_bin) & (weights > 0)
    add_to_lower(lower_ptr, keys, weights, counted)
    if arrived_last(counters_ptr + sequence, tl.num_programs(0)):
        missing = tl.load(state_ptr + TARGET) - tl.load(state_ptr + ABOVE)
        half, missing = _lower_bin_reaching(lower_ptr, missing)
        border = border_bin * BINS + half
        first_tied = border * 0
        if MASS:
            each = tl.maximum(probability_mass(logit_of(border), largest), 1)
            tied = tl.load(lower_ptr + half, cache_modifier=".cg") // each
            wanted = (missing + each - 1) // each
            if wanted < tied:
                first_tied = _nth_tied_from_the_end(
                    logits_ptr + sequence * vocabulary,
                    vocabulary,
                    inverse_temperature,
                    border,
                    wanted,
                )
        tl.store(state_ptr + BORDER, border)
        tl.store(state_ptr + FIRST_TIED, first_tied)


@triton.jit
def _lower_bin_reaching(lower_ptr, target):
    """The bin of a lower half where the running sum reaches `target`, and how much it must add."""
    last = target * 0 + (GROUP - 1)
    group, above = _bin_reaching(lower_ptr + BINS, last, target, GROUP)
    target -= above
    in_group, above = _bin_reaching(lower_ptr + group * GROUP, last, target, GROUP)
    return group * GROUP + in_group, target - above


@triton.jit
def _bin_reaching(histogram_ptr, first, target, AT_ONCE: tl.constexpr):
    """From bin `first` downwards, where the running sum reaches `target`, and the sum before it."""
    above = target * 0
    reached = first * 0 - 1
    while (reached < 0) & (first >= 0):
        bins = first - tl.arange(0, AT_ONCE)
        weights = tl.load(histogram_ptr + bins, mask=bins >= 0, other=0, cache_modifier=".cg")
        short = above + tl.cumsum(weights, 0) < target
        above += tl.sum(tl.where(short, weights, 0))
        shorts = tl.sum(short.to(tl.int64))
        reached = tl.where(shorts < AT_ONCE, first - shorts, reached)
        first -= AT_ONCE
    return tl.maximum(reached, 0), above


@triton.jit
def _nth_tied_from_the_end(logits_ptr, vocabulary, inverse_temperature, border, wanted):
    """Of the tokens with this key, the one that is number `wanted`, from 1, highest token first."""
    token = border * 0
    end = token + vocabulary
    while (wanted > 0) & (end > 0):
        tokens = end - 1 - tl.arange(0, _TOKENS_AT_ONCE)
        scaled = scaled_logits(logits_ptr, tokens, tokens >= 0, inverse_temperature)
        tied = ((tokens >= 0) & (logit_keys(scaled) == border)).to(tl.int64)
        is_nth = (tied > 0) & (tl.cumsum(tied, 0) == wanted)
        token += tl.sum(tl.where(is_nth, tokens, 0))
        wanted -= tl.sum(tied)
        end -= _TOKENS_AT_ONCE
    return token
