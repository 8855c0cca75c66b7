"""RMSNorm of activations as int16 with one scale for each token: codes = n / scale, n = RMSNorm(x).

scale[b] = max |n[b]| / 32,639. A code is off by half a step at most, 1 / 65,278 (2^-16) of its
token's largest value, and so all of a token by sqrt(features) / 65,278 of their Euclidean norm: of
4,096 features 2^-10, where rounding to bfloat16 is off by up to 2^-9. Products with INT4 weights
take codes and scale as they are (`device/integer_product.py`).

A code is 256 upper + lower, two int8 of -128 to 127. They are stored in the order in which the
weights' codes meet them (`host/packing.py`): of each 32 columns the upper bytes, then the lower
ones. Of those, for each of four words of weights a word of four int8 for the codes that are lower
nibbles of its bytes, then one each for the upper nibbles.

Bytes moved: x and the norm's weight once, two bytes for each code, 4 for each scale. One program
holds one token in registers. In the launch of the product each program would have to find the scale
again, and to order all of x.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.packed_codes import CHUNK
from decodescope.kernels.host.operation import Launch, Tensors
from decodescope.kernels.host.weights import INTEGER_X, LARGEST_INTEGER, LEAST_SCALE, Norm
from decodescope.kernels.ops.rms_norm import rms_norm_reference
from decodescope.kernels.ops.scaled_rows import ScaledRows

_LARGEST = tl.constexpr(LARGEST_INTEGER)
_LEAST = tl.constexpr(LEAST_SCALE)
_INFINITY = tl.constexpr(0x7F800000)
# Adding it rounds a float32 below 2^22 to the nearest integer, ties to even.
_TO_INTEGER = tl.constexpr(1.5 * 2.0**23)


def rms_norm_integers_reference(x: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers whose nearest integers are the codes [rows, features], in the order of the
    columns, and the scales [rows], in float64."""
    n = rms_norm_reference(x, norm)
    scale = n.abs().amax(-1) / LARGEST_INTEGER
    return n / torch.where(scale == 0, 1.0, scale)[:, None], scale


@triton.jit
def _rms_norm_integers_kernel(
    x_ptr,
    g_ptr,
    out_ptr,
    scale_ptr,
    features,
    eps,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    token = tl.program_id(0)
    start = token.to(tl.int64) * features
    # The column of each byte of a plane.
    place = tl.arange(0, BLOCK)
    pair = place // 16 % 2 + place % 2 * 2
    column = place // CHUNK * CHUNK + 8 * pair + place // 4 % 4 * 2 + place // 2 % 2
    mask = place < features
    g = tl.load(g_ptr + column, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(PDL)
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / features + eps)
    # The same for all of a row, `rstd` changes no code.
    n = x * g
    # As integers: of magnitudes, NaN is the largest, then infinity.
    bits = tl.max(n.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0)
    known = bits < _INFINITY
    largest = tl.where(known, bits, 0).to(tl.float32, bitcast=True)
    n = tl.where(known, n, 0.0)
    # Not by a division: a code may be the next one where the quotient is half-way.
    inverse = 1.0 / tl.where(largest < _LEAST, 1.0, largest)
    codes = ((n * inverse * _LARGEST + _TO_INTEGER) - _TO_INTEGER).to(tl.int32)
    upper = (codes + 128) >> 8
    out_ptr = out_ptr.to(tl.pointer_type(tl.int8)) + 2 * start
    out_ptr += place // CHUNK * (2 * CHUNK) + place % CHUNK
    tl.store(out_ptr, upper.to(tl.int8), mask=mask)
    tl.store(out_ptr + CHUNK, (codes - upper * 256).to(tl.int8), mask=mask)
    tl.store(scale_ptr + token, tl.where(known, tl.div_rn(largest, _LARGEST) * rstd, float("nan")))


@dataclass(frozen=True, slots=True)
class RmsNormIntegers(ScaledRows):
    """scale[b] = max |n[b]| / 32,639, out[b] = n[b] / scale[b], rounded to nearest, n = RMSNorm(x)
    in float32.

    x [rows, features] of a dtype of the kernels, features a multiple of 32, out int16 likewise,
    scale float32 [rows], all contiguous. A row with NaN or an infinity has codes 0 and scale NaN:
    its products are NaN, as those of the norm itself are.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an output in x's memory; more than
            `rms_norm.MAX_FEATURES` features.
    """

    x: torch.Tensor
    norm: Norm
    out: torch.Tensor
    scale: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        if self.x.dim() != 2 or self.x.shape[1] % CHUNK.value:
            raise ValueError(f"x {list(self.x.shape)}: must be [rows, a multiple of {CHUNK.value}]")
        return self.launched(_rms_norm_integers_kernel, self.norm, INTEGER_X, pdl)

    def reference(self, position: int) -> Tensors:
        return rms_norm_integers_reference(self.x, self.norm)
