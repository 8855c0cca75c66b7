"""The largest of many logits, and of equal ones the lowest index, as a maximum of integers.

A key holds a logit and its index; keys are ordered by logit, then by lowest index. The maximum of
integers does not depend on their order, so programs offer their keys with atomic operations.
"""

import triton
import triton.language as tl

from decodescope.kernels.host import workspace

# Below every key.
NO_KEY = tl.constexpr(workspace.NO_KEY)


@triton.jit
def choice_keys(logits, indices):
    """int64 keys that are ordered like the float32 logits; of equal ones the lower index is larger.

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
