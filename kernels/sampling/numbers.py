"""The numbers of sampling on the device: scaled logits, their keys, probability mass, Gumbel noise.

The functions repeat those of `reference` operation by operation; it explains why. Launch with
`EXACT`, so that no multiplication is fused with an addition.
"""

from typing import Any

import triton
import triton.language as tl

from decodescope.kernels.sampling.reference import EXP_COEFFICIENTS, LOG_COEFFICIENTS

_EXP_COEFFICIENTS = tl.constexpr(EXP_COEFFICIENTS)
_EXP_COUNT = tl.constexpr(len(EXP_COEFFICIENTS))
_LOG_COEFFICIENTS = tl.constexpr(LOG_COEFFICIENTS)
_LOG_COUNT = tl.constexpr(len(LOG_COEFFICIENTS))

EXACT: dict[str, Any] = {"enable_fp_fusion": False}


@triton.jit
def program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK: tl.constexpr):
    """The BLOCK tokens of this program, which of them exist, and their scaled logits.

    Program (i, j) has block i of sequence j.
    """
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < vocabulary
    logits_ptr += tl.program_id(1).to(tl.int64) * vocabulary
    return tokens, inside, scaled_logits(logits_ptr, tokens, inside, inverse_temperature)


@triton.jit
def scaled_logits(logits_ptr, offsets, mask, inverse_temperature):
    """Logits times 1 / temperature, float32; -inf where masked or NaN, 1e38 where +inf."""
    logits = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf"))
    scaled = logits.to(tl.float32) * inverse_temperature
    scaled = tl.where(scaled == scaled, scaled, float("-inf"))
    return tl.minimum(scaled, 1e38)


@triton.jit
def logit_keys(scaled):
    """int64 from 0 to 2^32 - 1, ordered like the float32 values, -0 as +0."""
    bits = tl.where(scaled == 0.0, 0.0, scaled).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ordered.to(tl.int64) + 0x80000000


@triton.jit
def logit_of(key):
    """The float32 value of a key."""
    ordered = (key - 0x80000000).to(tl.int32)
    bits = tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def probability_mass(scaled, largest):
    """floor(2^40 exp(scaled - largest)), int64."""
    distance = tl.maximum(tl.maximum(scaled, -1e38) - tl.maximum(largest, -1e38), -30.0)
    halvings = tl.floor(distance * 1.44269504 + 0.5)
    rest = distance - halvings * 0.693359375
    rest = rest - halvings * -2.12194440e-4
    factor = _horner(rest, _EXP_COEFFICIENTS, _EXP_COUNT) * (rest * rest) + rest + 1.0
    return ((factor * 16777216.0).to(tl.int64) << 16) >> (-halvings).to(tl.int64)


@triton.jit
def gumbel_noise(seed, position, sequence, first, BLOCK: tl.constexpr):
    """g = -log(-log u) of tokens first to first + BLOCK - 1; `first` is a multiple of 4."""
    counters = first // 4 + tl.arange(0, BLOCK // 4)
    zeros = counters * 0
    a, b, c, d = tl.philox(seed, counters, zeros + position, zeros + sequence, zeros)
    # In this order: a, b, c, d of the first counter, then those of the next.
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BLOCK,))
    v = tl.maximum(bits.to(tl.float32), 0.5) * 2.3283064365386963e-10
    return -_log(-_log1p_negative(tl.minimum(v, 0.99999994039535522)))


@triton.jit
def _log(x):
    """log x of positive normal float32."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 127
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    high = mantissa > 1.4142135
    mantissa = tl.where(high, mantissa * 0.5, mantissa)
    return _log_of_parts(mantissa - 1.0, (exponent + high.to(tl.int32)).to(tl.float32))


@triton.jit
def _log1p_negative(v):
    """log(1 - v) of 0 < v < 1."""
    return tl.where(v < 0.29, _log_of_parts(-v, v * 0.0), _log(1.0 - v))


@triton.jit
def _log_of_parts(f, exponent):
    """log((1 + f) 2^exponent)."""
    square = f * f
    y = _horner(f, _LOG_COEFFICIENTS, _LOG_COUNT) * f * square
    y = y + exponent * -2.12194440e-4
    y = y - square * 0.5
    return f + y + exponent * 0.693359375


@triton.jit
def _horner(x, COEFFICIENTS: tl.constexpr, COUNT: tl.constexpr):
    """The polynomial with these coefficients, highest power first."""
    y = x * COEFFICIENTS[0] + COEFFICIENTS[1]
    for index in tl.static_range(2, COUNT):
        y = y * x + COEFFICIENTS[index]
    return y
