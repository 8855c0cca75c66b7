"""The experts of a token, found by each program from the router's logits.

They are chosen by their logits; with a correction, by sigmoid(logit) + correction. Of equal ones
the expert with the lowest index comes first. NaN without a sign is the largest, so that an index is
always that of an expert. A token's slots are its chosen experts in that order.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index

_LEAST = tl.constexpr(torch.finfo(torch.float32).min)
_NO_SHORT_KEY = tl.constexpr(torch.iinfo(torch.int32).min)
# Logits of several tokens that are compared at once.
_COMPARED = tl.constexpr(2048)


@triton.jit
def _keys(logits, correction_ptr, expert, inside):
    """Integers in the order of the experts. Those of 16-bit logits have 32 bits, of which a warp
    finds the largest in one instruction."""
    if correction_ptr is not None:
        correction = tl.load(correction_ptr + expert, mask=inside, other=0.0)
        logits = tl.sigmoid(logits.to(tl.float32)) + correction
    if logits.dtype.primitive_bitwidth == 16:
        bits = logits.to(tl.int16, bitcast=True).to(tl.int32)
        # -0 equals +0.
        bits = tl.where(bits == -0x8000, 0, bits)
        keys = (tl.where(bits < 0, bits ^ 0x7FFF, bits) << 16) | (0xFFFF - expert)
    else:
        keys = choice_keys(logits, expert)
    return keys


@triton.jit
def router_keys(logits_ptr, correction_ptr, token, EXPERTS: tl.constexpr):
    """exp(logit - the largest logit) of each expert of a token, and the keys, both [EXPERTS rounded
    up to 2^n]; past the end 0 and below all keys. With a correction sigmoid(logit) and the keys.

    The shares are the first divided by their sum; the largest exponential is 1, so that no sum of
    them is 0.
    """
    expert = tl.arange(0, triton.next_power_of_2(EXPERTS))
    inside = expert < EXPERTS
    # A program may load them before it waits for the previous kernel: not from an L1 cache, which
    # may hold those of an earlier step.
    stored = tl.load(
        logits_ptr + token * EXPERTS + expert, mask=inside, other=0.0, cache_modifier=".cg"
    )
    logits = tl.where(inside, stored.to(tl.float32), _LEAST)
    keys = _keys(stored, correction_ptr, expert, inside)
    if keys.dtype == tl.int32:
        keys = tl.where(inside, keys, _NO_SHORT_KEY)
    else:
        keys = tl.where(inside, keys, NO_KEY)
    if correction_ptr is not None:
        weights = tl.where(inside, tl.sigmoid(stored.to(tl.float32)), 0.0)
    else:
        weights = tl.exp(logits - tl.max(logits, axis=0))
    return weights, keys


@triton.jit
def next_expert(weights, keys):
    """The expert of the largest key, as int64, its weight, and the keys without it."""
    largest = tl.max(keys, axis=0)
    share = tl.sum(tl.where(keys == largest, weights, 0.0), axis=0)
    if keys.dtype == tl.int32:
        expert = (0xFFFF - (largest & 0xFFFF)).to(tl.int64)
        keys = tl.where(keys == largest, _NO_SHORT_KEY, keys)
    else:
        expert = chosen_index(largest)
        keys = tl.where(keys == largest, NO_KEY, keys)
    return expert, share, keys


@triton.jit
def own_expert(expert, FIRST: tl.constexpr, HELD: tl.constexpr):
    """The number of an expert among the HELD ones of this rank, from FIRST on, and whether it is
    one of them; else the nearest, whose matrices may be read."""
    own = expert - FIRST
    inside = tl.minimum(tl.maximum(own, 0), HELD - 1)
    return inside, own == inside


@triton.jit
def slots_of_expert(
    logits_ptr,
    correction_ptr,
    expert,
    BATCH: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """The slot that each token has the expert in, int32 [TOKENS]: the experts that come before it,
    so that it is chosen if they are fewer than the token's slots. EXPERTS for the padding. As
    `router_keys`, it may be called before the program waits for the previous kernel."""
    token = tl.arange(0, TOKENS)
    rows = logits_ptr + tl.minimum(token, BATCH - 1) * EXPERTS
    own = tl.load(rows + expert, cache_modifier=".cg")
    own = _keys(own, correction_ptr, expert, expert < EXPERTS)
    CHUNK: tl.constexpr = min(triton.next_power_of_2(EXPERTS), _COMPARED // TOKENS)
    slots = tl.zeros((TOKENS,), tl.int32)
    for start in tl.static_range(0, EXPERTS, CHUNK):
        other = (start + tl.arange(0, CHUNK))[None, :]
        inside = other < EXPERTS
        logits = tl.load(rows[:, None] + other, mask=inside, other=0.0, cache_modifier=".cg")
        before = inside & (_keys(logits, correction_ptr, other, inside) > own[:, None])
        slots += tl.sum(before.to(tl.int32), axis=1)
    return tl.where(token < BATCH, slots, EXPERTS)
