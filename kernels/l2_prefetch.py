"""Asking for memory that is read soon to be brought into the L2 cache.

Only a hint: nothing waits for the data, and no result depends on it. Attention at a short context
leaves DRAM idle; the next kernels' weights can come in meanwhile, asked for by programs that do
nothing else. Needs compute capability 9.0, and cannot run in Triton's interpreter.

Source: PTX ISA 8.0, cp.async.bulk.prefetch (address and size multiples of 16 bytes).
"""

import triton
import triton.language as tl

from decodescope.kernels.weights import WeightMatrix

PREFETCH_PROGRAMS = 24
ALIGNMENT = 16

# Bytes of one instruction: small, so that a matrix of a few MB is spread over all programs.
_PIECE = tl.constexpr(16384)


def prefetchable_bytes(weight: WeightMatrix, most: int | None = None) -> int:
    """Bytes of `weight`'s elements to prefetch, at most `most`, as the instruction takes them.

    Raises:
        ValueError: elements that do not start at a multiple of 16 bytes, or `most` below 0.
    """
    if weight.data.data_ptr() % ALIGNMENT:
        raise ValueError(f"weights to prefetch must start at a multiple of {ALIGNMENT} bytes")
    if most is not None and most < 0:
        raise ValueError(f"prefetch of {most} bytes: must be 0 or more")
    size = weight.data.numel() * weight.data.element_size()
    return (size if most is None else min(size, most)) // ALIGNMENT * ALIGNMENT


@triton.jit
def prefetch_pieces(start_ptr, size, NUM_WARPS: tl.constexpr):
    """Ask for [start, start + size) bytes, at most 16 KiB for each warp of this program."""
    thread = tl.arange(0, NUM_WARPS * 32)
    offset = (thread // 32).to(tl.int64) * _PIECE
    piece = tl.minimum(tl.maximum(size - offset, 0), _PIECE).to(tl.int32)
    # The instruction takes its operands from registers that a warp's threads share: requests of
    # several threads would be issued one after the other.
    piece = tl.where(thread % 32 == 0, piece, 0)
    tl.inline_asm_elementwise(
        """{
        .reg .pred some;
        setp.gt.s32 some, $2, 0;
        @some cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.u32 $0, 0;
        }""",
        "=r,l,r",
        [start_ptr.to(tl.int64) + offset, piece],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def prefetch_share(start_ptr, size, program, PROGRAMS: tl.constexpr, NUM_WARPS: tl.constexpr):
    """Ask for [start, start + size) bytes, as program `program` of PROGRAMS that share them."""
    bytes_ptr = start_ptr.to(tl.pointer_type(tl.uint8))
    step = NUM_WARPS * _PIECE
    for offset in range(program.to(tl.int64) * step, size, PROGRAMS * step):
        prefetch_pieces(bytes_ptr + offset, size - offset, NUM_WARPS)
