"""Prefetching memory that is read soon into the L2 cache.

Only a hint: nothing waits for the data, and no result depends on it. Extra programs, which do
nothing else, prefetch the next kernel's weights. Needs compute capability 9.0; Triton's interpreter
cannot run it.

Off by default: in whole steps on an H200 it gained nothing reliable (docs/decisions.md, 28).

Source: PTX ISA 8.0, cp.async.bulk.prefetch (address and size multiples of 16 bytes).
"""

import triton
import triton.language as tl

from decodescope.kernels.host.weights import WeightMatrix

PREFETCH_PROGRAMS = tl.constexpr(24)

_ALIGNMENT = 16
# Bytes of one instruction: small, so that a matrix of a few MB is spread over all programs.
_PIECE = tl.constexpr(16384)


def prefetchable_bytes(weight: WeightMatrix) -> int:
    """Bytes of `weight`'s elements, rounded down to what the instruction takes.

    Raises:
        ValueError: elements that do not start at a multiple of 16 bytes.
    """
    if weight.data.data_ptr() % _ALIGNMENT:
        raise ValueError(f"weights to prefetch must start at a multiple of {_ALIGNMENT} bytes")
    return weight.data.nbytes // _ALIGNMENT * _ALIGNMENT


@triton.jit
def prefetch_share(start_ptr, size, program, PROGRAMS: tl.constexpr, NUM_WARPS: tl.constexpr):
    """Prefetch [start, start + size) bytes, as program `program` of PROGRAMS that share them."""
    bytes_ptr = start_ptr.to(tl.pointer_type(tl.uint8))
    thread = tl.arange(0, NUM_WARPS * 32)
    step = NUM_WARPS * _PIECE
    for first in range(program.to(tl.int64) * step, size, PROGRAMS * step):
        offset = first + (thread // 32) * _PIECE
        piece = tl.minimum(tl.maximum(size - offset, 0), _PIECE).to(tl.int32)
        # The instruction takes its operands from registers that a warp's threads share: prefetches
        # of several threads would be issued one after the other.
        piece = tl.where(thread % 32 == 0, piece, 0)
        tl.inline_asm_elementwise(
            """{
            .reg .pred some;
            setp.gt.s32 some, $2, 0;
            @some cp.async.bulk.prefetch.L2.global [$1], $2;
            mov.u32 $0, 0;
            }""",
            "=r,l,r",
            [bytes_ptr.to(tl.int64) + offset, piece],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
