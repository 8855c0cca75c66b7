"""Sums a buffer, to measure how fast a GPU reads memory.

Bytes moved: the buffer once, plus one float32 per program: numel * itemsize + 4 * programs. There
is one addition per element, so on any current GPU the reads determine the time. The copy kernels
that are commonly used for this measure reads and writes together, which is slower in DRAM.

Program p of P sums the blocks p, p + P, p + 2P, ...: all programs advance through memory together.
"""

import torch
import triton
import triton.language as tl

BLOCK = 4096
NUM_WARPS = 8


def partial_sums_reference(x: torch.Tensor, programs: int, block: int = BLOCK) -> torch.Tensor:
    """partial[p] = sum of the blocks p, p + P, p + 2P, ..., in float64.

    x: [numel], any float dtype. Returns float64 [programs].
    """
    blocks = -(-x.numel() // block)
    rounds = -(-blocks // programs)
    padded = x.new_zeros(rounds * programs * block, dtype=torch.float64)
    padded[: x.numel()] = x
    return padded.view(rounds, programs, block).sum(dim=(0, 2))


@triton.jit
def _partial_sums_kernel(x_ptr, partial_ptr, numel, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    # 64-bit offsets: a buffer of 4 GiB or more has more than 2^31 elements.
    start = program.to(tl.int64) * BLOCK
    stride = programs.to(tl.int64) * BLOCK
    for first in range(start, numel, stride):
        offsets = first + lane
        values = tl.load(x_ptr + offsets, mask=offsets < numel, other=0.0)
        total += values.to(tl.float32)
    tl.store(partial_ptr + program, tl.sum(total, axis=0))


def partial_sums(x: torch.Tensor, partial: torch.Tensor, block: int = BLOCK) -> torch.Tensor:
    """Read all of `x` and write one sum per program to `partial`; returns `partial`.

    partial[p] = sum of x over the blocks p, p + P, ... of `block` elements, added in float32.

    x: contiguous [numel], any float dtype; partial: float32 [P], P programs; both on one device.
    Raises ValueError for other shapes or dtypes, and for a block that is no power of two.
    """
    if not x.is_contiguous() or x.dim() != 1 or not x.is_floating_point():
        raise ValueError("x must be a contiguous float tensor of one dimension")
    if partial.dtype != torch.float32 or partial.dim() != 1 or not partial.is_contiguous():
        raise ValueError("partial must be a contiguous float32 tensor of one dimension")
    if x.device != partial.device:
        raise ValueError(f"x is on {x.device}, but partial on {partial.device}")
    if block < 1 or block & (block - 1):
        raise ValueError(f"block {block} is no power of two")
    _partial_sums_kernel[(partial.numel(),)](
        x, partial, x.numel(), BLOCK=block, num_warps=NUM_WARPS
    )
    return partial


def bytes_moved(x: torch.Tensor, partial: torch.Tensor) -> int:
    """The bytes a call of `partial_sums` must move: all of `x`, and the partial sums."""
    return x.numel() * x.element_size() + partial.numel() * partial.element_size()
