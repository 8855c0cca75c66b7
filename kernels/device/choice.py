"""The largest of many logits, the lowest index among equals, as the maximum of integers.

A key holds a logit and its index, and keys are ordered as (logit, lowest index). Integers have one
maximum, so programs may offer theirs by atomic operations in any order.
"""

import triton
import triton.language as tl


@triton.jit
def choice_keys(logits, indices):
    """int64 keys that are ordered like the float32 logits, lower index first among equals.

    NaN without a sign counts as larger than infinity, as in torch.argmax. -0 equals +0.
    """
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)
    # Negative floats grow in magnitude with their bits; flipped, they grow in value.
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - indices).to(tl.int64)


@triton.jit
def chosen_index(keys):
    """The indices that `choice_keys` packed."""
    return 0x7FFFFFFF - (keys & 0x7FFFFFFF)
