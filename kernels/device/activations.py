"""The functions between and after products: activations of a gated MLP, and soft caps."""

import triton
import triton.language as tl


@triton.jit
def gated(gate, up, GELU: tl.constexpr, ALPHA: tl.constexpr = 1.0, LIMIT: tl.constexpr = None):
    """activation(gate) * up: of SiLU, or of GELU's approximation by tanh; or with LIMIT as
    `host.activation.ClampedGate` says.

    0.5 (1 + tanh(y)) is the sigmoid of 2 y; GELU has y = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    if LIMIT is not None:
        gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        up = 1.0 + tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    slope = ALPHA * gate
    if GELU:
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        # Its cube is large soon: the sigmoid's exponential must not overflow.
        slope = tl.maximum(slope, -80.0)
    return gate * tl.sigmoid(slope) * up


@triton.jit
def soft_capped(x, cap):
    """cap * tanh(x / cap) in float32, by an exponential that cannot overflow."""
    ratio = x / cap
    fade = tl.exp(-2.0 * tl.abs(ratio))
    size = cap * (1.0 - fade) / (1.0 + fade)
    return tl.where(ratio < 0, -size, size)
