"""The experts of a token, found by each program from the router's logits.

Of equal logits the expert with the lowest index comes first. NaN without a sign is the largest, so
that an index is always that of an expert.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index

_LEAST = tl.constexpr(torch.finfo(torch.float32).min)


@triton.jit
def router_keys(logits_ptr, token, EXPERTS: tl.constexpr):
    """A token's router logits in float32 and their keys, both [EXPERTS rounded up to 2^n]; logits
    past the end are the least finite number, their keys below all others."""
    lanes: tl.constexpr = triton.next_power_of_2(EXPERTS)
    expert = tl.arange(0, lanes)
    inside = expert < EXPERTS
    logits = tl.load(logits_ptr + token * EXPERTS + expert, mask=inside, other=0.0).to(tl.float32)
    logits = tl.where(inside, logits, _LEAST)
    return logits, tl.where(inside, choice_keys(logits, expert), NO_KEY)


@triton.jit
def next_expert(keys):
    """The expert of the largest key, as int64, and the keys without it."""
    largest = tl.max(keys, axis=0)
    return chosen_index(largest), tl.where(keys == largest, NO_KEY, keys)
