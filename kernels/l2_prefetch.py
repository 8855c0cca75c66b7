"""Asking L2 for memory that a later kernel will read, from programs that do nothing else.

Attention at a short context leaves DRAM idle; weights of the next kernels can come in meanwhile.
Only a hint: nothing waits for the data, and no result depends on it. Needs compute capability 9.0.

Source: PTX ISA 8.0, cp.async.bulk.prefetch (address and size multiples of 16 bytes).
"""

import triton
import triton.language as tl

from decodescope.kernels.weights import WeightMatrix

PREFETCH_PROGRAMS = 24

# Bytes of one instruction. Small, so that a matrix of a few MB is spread over all the threads.
_PIECE = tl.constexpr(2048)


def prefetchable_bytes(weight: WeightMatrix, most: int | None = None) -> int:
    """Bytes of `weight`'s elements to prefetch, at most `most`, as the instruction takes them.

    Raises:
        ValueError: elements that do not start at a multiple of 16 bytes, or `most` below 0.
    """
    if weight.data.data_ptr() % 16:
        raise ValueError("weights to prefetch must start at a multiple of 16 bytes")
    if most is not None and most < 0:
        raise ValueError(f"prefetch of {most} bytes: must be 0 or more")
    size = weight.data.numel() * weight.data.element_size()
    return (size if most is None else min(size, most)) // 16 * 16


@triton.jit
def prefetch_to_l2(start_ptr, size, program, PROGRAMS: tl.constexpr, NUM_WARPS: tl.constexpr):
    """Ask for [start, start + size) bytes, as program `program` of PROGRAMS that share them."""
    # One lane a thread, or threads would repeat each other's requests.
    thread = program * (NUM_WARPS * 32) + tl.arange(0, NUM_WARPS * 32)
    start = start_ptr.to(tl.int64)
    for round_start in range(0, size, PROGRAMS * NUM_WARPS * 32 * _PIECE):
        offset = round_start + thread.to(tl.int64) * _PIECE
        piece = tl.minimum(tl.maximum(size - offset, 0), _PIECE).to(tl.int32)
        tl.inline_asm_elementwise(
            """{
            .reg .pred some;
            setp.gt.s32 some, $2, 0;
            @some cp.async.bulk.prefetch.L2.global [$1], $2;
            mov.u32 $0, 0;
            }""",
            "=r,l,r",
            [start + offset, piece],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
