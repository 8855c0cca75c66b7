"""RMSNorm of many rows, as a ladder: ways to do the same, from two passes to a pipelined copy.

out = x / sqrt(mean(x^2) + eps) * weight, row by row. Bytes moved: x read, out written, the weight:
2 * rows * features * itemsize + the weight's bytes. With thousands of rows memory is all that
counts: a device copy moves as many bytes.

1. `RmsNormLooped`: a program walks over its row in blocks, twice. The second read finds the row in
   a cache or reads it from memory again.
2. `RmsNorm` (`rms_norm.py`): a program holds its row in registers, and reads it once.
3. `RmsNormRows`: a program holds several rows. Their length is a compile-time constant, so every
   access has 16 bytes a thread where the rows allow it, and no element needs a mask.
4. `RmsNormRows` with `programs`: no more programs than run at once, each with many rows. With
   stages, copies of the next rows into shared memory are under way while a row is normalised and
   stored. Triton 3.6 issues these copies (cp.async) without their eviction policy; so with stages a
   hint counts for stores only.

The last two also run without a norm: a copy with the same accesses, which shows what RMSNorm adds.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.host.checks import check_float, check_output, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import check_norm_weight, rms_norm_reference

# What loads and stores ask of the L1 and L2 caches; nothing is used twice here. "evict_first": all
# lines leave first. "evict_stores": stored lines leave first and loaded ones last, so that lines on
# their way to memory make room, and not lines that arrive. On an H200 only this reaches the rate of
# a device copy, for a reason that was not found. It is not that x stays in the L2 cache until the
# next call: that saves at most the cache's size, which is less than what the hint gains.
Hint = Literal["", "evict_first", "evict_stores"]
_LOAD = {"": "", "evict_first": "evict_first", "evict_stores": "evict_last"}
_STORE = {"": "", "evict_first": "evict_first", "evict_stores": "evict_first"}


@dataclass(frozen=True, slots=True)
class RowTile:
    """How `RmsNormRows` divides its rows.

    rows: rows that a program holds at once, a power of two. programs: programs of the launch, each
    with every programs-th block of `rows` rows; None for a program a block. num_stages: with
    `programs`, one more than the blocks on their way while a block is normalised.

    Raises:
        ValueError: a size below 1, or one that must be a power of two and is not.
    """

    rows: int = 1
    num_warps: int = 8
    num_stages: int = 1
    programs: int | None = None
    hint: Hint = ""

    def __post_init__(self) -> None:
        for name in ("rows", "num_warps"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"tile {name} {size}: must be a power of two")
        if self.num_stages < 1 or (self.programs is not None and self.programs < 1):
            raise ValueError(f"{self.programs} programs with {self.num_stages} stages: below 1")


@triton.jit
def _looped_kernel(x_ptr, weight_ptr, out_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, features, BLOCK):
        column = start + lane
        x = tl.load(x_ptr + row + column, mask=column < features, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / features + eps)
    for start in range(0, features, BLOCK):
        column = start + lane
        mask = column < features
        x = tl.load(x_ptr + row + column, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        out = rounded(x * scale * weight, out_ptr.dtype.element_ty)
        tl.store(out_ptr + row + column, out, mask=mask)


@triton.jit
def _block_of_rows(
    x_ptr,
    weight,
    out_ptr,
    block,
    rows,
    eps,
    FEATURES: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    EVEN: tl.constexpr,
    LOAD: tl.constexpr,
    STORE: tl.constexpr,
):
    """Normalise the int64 `block` of ROWS rows with `weight` [1, BLOCK]; without it, copy them."""
    row = (block * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = row * FEATURES + column
    if EVEN:
        x = tl.load(x_ptr + place, eviction_policy=LOAD)
    else:
        mask = (row < rows) & (column < FEATURES)
        x = tl.load(x_ptr + place, mask=mask, other=0.0, eviction_policy=LOAD)
    out = x
    if weight is not None:
        x = x.to(tl.float32)
        mean_square = tl.sum(x * x, axis=1, keep_dims=True) / FEATURES
        out = rounded(x * tl.rsqrt(mean_square + eps) * weight, out_ptr.dtype.element_ty)
    if EVEN:
        tl.store(out_ptr + place, out, eviction_policy=STORE)
    else:
        tl.store(out_ptr + place, out, mask=mask, eviction_policy=STORE)


@triton.jit
def _row_of_weights(weight_ptr, FEATURES: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)[None, :]
    return tl.load(weight_ptr + column, mask=column < FEATURES, other=0.0).to(tl.float32)


@triton.jit
def _rows_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    eps,
    FEATURES: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    EVEN: tl.constexpr,
    LOAD: tl.constexpr,
    STORE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """STAGES None: a program has one block of rows. Otherwise every num_programs-th."""
    weight = None
    if weight_ptr is not None:
        weight = _row_of_weights(weight_ptr, FEATURES, BLOCK)
    first = tl.program_id(0).to(tl.int64)
    if STAGES is None:
        _block_of_rows(
            x_ptr, weight, out_ptr, first, rows, eps, FEATURES, BLOCK, ROWS, EVEN, LOAD, STORE
        )
    else:
        # All programs advance through memory together.
        for block in tl.range(first, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
            _block_of_rows(
                x_ptr, weight, out_ptr, block, rows, eps, FEATURES, BLOCK, ROWS, EVEN, LOAD, STORE
            )


@dataclass(frozen=True, slots=True)
class RmsNormLooped(KernelOperation):
    """out = x / sqrt(mean(x^2) + eps) * weight in two passes over blocks of each row.

    x and out [rows, features], contiguous; computed in float32 and rounded once. `block` elements,
    a power of two, are loaded at once.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a block that is no power of two.
    """

    x: torch.Tensor
    norm: Norm
    out: torch.Tensor
    block: int = 1024
    num_warps: int = 4

    def launch(self, pdl: bool = False) -> Launch:
        rows, features = _check_rows(self.x, self.norm, self.out)
        if self.block < 1 or self.block & (self.block - 1):
            raise ValueError(f"block {self.block}: must be a power of two")
        return launch(
            _looped_kernel,
            (rows,),
            self.x,
            self.norm.weight,
            self.out,
            features,
            self.norm.eps,
            BLOCK=self.block,
            num_warps=self.num_warps,
        )

    def reference(self, position: int) -> Tensors:
        return (rms_norm_reference(self.x, self.norm),)


@dataclass(frozen=True, slots=True)
class RmsNormRows(KernelOperation):
    """out = x / sqrt(mean(x^2) + eps) * weight by whole rows; without a norm, out = x.

    x and out [rows, features], contiguous; computed in float32 and rounded once.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; more than `MAX_FEATURES` features.
    """

    x: torch.Tensor
    norm: Norm | None
    out: torch.Tensor
    tile: RowTile

    def launch(self, pdl: bool = False) -> Launch:
        norm, tile = self.norm, self.tile
        rows, features = _check_rows(self.x, norm, self.out)
        block = triton.next_power_of_2(features)
        blocks = triton.cdiv(rows, tile.rows)
        return launch(
            _rows_kernel,
            (min(blocks, tile.programs or blocks),),
            self.x,
            None if norm is None else norm.weight,
            self.out,
            rows,
            0.0 if norm is None else norm.eps,
            FEATURES=features,
            BLOCK=block,
            ROWS=tile.rows,
            EVEN=features == block and rows % tile.rows == 0,
            LOAD=_LOAD[tile.hint],
            STORE=_STORE[tile.hint],
            STAGES=None if tile.programs is None else tile.num_stages,
            num_warps=tile.num_warps,
        )

    def reference(self, position: int) -> Tensors:
        x, norm = self.x, self.norm
        return (x.double() if norm is None else rms_norm_reference(x, norm),)


def _check_rows(x: torch.Tensor, norm: Norm | None, out: torch.Tensor) -> tuple[int, int]:
    """Rows and features of contiguous x and out [rows, features], after the checks."""
    if x.dim() != 2:
        raise ValueError(f"x {list(x.shape)}: must be [rows, features]")
    check_float("x", x)
    check_tensor("x", x, tuple(x.shape), x.dtype, x.device)
    check_output("out", out, tuple(x.shape), x)
    rows, features = (int(size) for size in x.shape)
    check_norm_weight(norm, features, x.device)
    return rows, features
