"""The experts of a token, found by each program from the router's logits.

Of equal logits the expert with the lowest index comes first. NaN without a sign is the largest, so
that an index is always that of an expert.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index

_LEAST = tl.constexpr(torch.finfo(torch.float32).min)
_NO_SHORT_KEY = tl.constexpr(torch.iinfo(torch.int32).min)


@triton.jit
def router_keys(logits_ptr, token, EXPERTS: tl.constexpr):
    """A token's router logits in float32 and their keys, both [EXPERTS rounded up to 2^n]; logits
    past the end are the least finite number, their keys below all others.

    Keys of 16-bit logits have 32 bits, of which a warp finds the largest in one instruction.
    """
    lanes: tl.constexpr = triton.next_power_of_2(EXPERTS)
    expert = tl.arange(0, lanes)
    inside = expert < EXPERTS
    # A program may load them before it waits for the previous kernel: not from an L1 cache, which
    # may hold those of an earlier layer.
    stored = tl.load(
        logits_ptr + token * EXPERTS + expert, mask=inside, other=0.0, cache_modifier=".cg"
    )
    logits = tl.where(inside, stored.to(tl.float32), _LEAST)
    if logits_ptr.dtype.element_ty.primitive_bitwidth == 16:
        bits = tl.where(stored == 0.0, 0.0, stored).to(tl.int16, bitcast=True).to(tl.int32)
        ordered = tl.where(bits < 0, bits ^ 0x7FFF, bits)
        keys = tl.where(inside, (ordered << 16) | (0xFFFF - expert), _NO_SHORT_KEY)
    else:
        keys = tl.where(inside, choice_keys(logits, expert), NO_KEY)
    return logits, keys


@triton.jit
def next_expert(keys):
    """The expert of the largest key, as int64, and the keys without it."""
    largest = tl.max(keys, axis=0)
    if keys.dtype == tl.int32:
        expert = (0xFFFF - (largest & 0xFFFF)).to(tl.int64)
        keys = tl.where(keys == largest, _NO_SHORT_KEY, keys)
    else:
        expert = chosen_index(largest)
        keys = tl.where(keys == largest, NO_KEY, keys)
    return expert, keys
