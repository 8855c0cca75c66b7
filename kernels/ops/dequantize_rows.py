"""W[r, k] = data[r, k] * scale[r] in the model's dtype: narrow weights for a product of cuBLAS.

A prompt reads W once for all of its tokens and is limited by the tensor cores, so the prefill
multiplies by an ordinary matrix. The decode kernels never need one: they convert in registers.

Bytes moved: an element and 2 or 4 bytes of W for each weight, 4 for each scale. PyTorch's
`data.to(dtype).mul_(scale)` reads and writes W once more.

Source: the formats and scales of `host/weights.py` and `host/packing.py`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float32
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.packed_codes import (
    CHUNK,
    PER_WORD,
    chunk_scales,
    pair_values,
    scale_values,
)
from decodescope.kernels.host.checks import check_floats
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.weights import WeightMatrix

# 16 bytes of elements for each thread.
BLOCK = 2048
NUM_WARPS = 4


def dequantize_rows_reference(weight: WeightMatrix) -> torch.Tensor:
    """data * scale in float64."""
    return weight.dense()


@triton.jit
def _dequantize_rows_kernel(
    data_ptr,
    scale_ptr,
    out_ptr,
    columns,
    blocks,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    values = as_float32(tl.load(data_ptr + row * columns + column, mask=mask, other=0.0))
    if scale_ptr is not None:
        values *= tl.load(scale_ptr + row)
    wait_for_previous(PDL)
    tl.store(out_ptr + row * columns + column, values.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _dequantize_packed_rows_kernel(
    data_ptr,
    scale_ptr,
    out_ptr,
    blocks,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """A program has a block of one row's chunks of 32 columns, as [chunks, words, pairs, 2]."""
    allow_next(PDL)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    chunk = tl.program_id(0) % blocks * (BLOCK // CHUNK) + tl.arange(0, BLOCK // CHUNK)
    here = (chunk < (K + CHUNK - 1) // CHUNK)[:, None]
    SCALES: tl.constexpr = LAYOUT[1]
    data_ptr += row * LAYOUT[0]
    places = data_ptr + chunk[:, None] * (CHUNK // PER_WORD) + tl.arange(0, 4)[None, :]
    words = tl.load(places, mask=here, other=0).to(tl.uint32, bitcast=True)
    stored = chunk_scales(data_ptr, tl.zeros((1,), tl.int32), chunk, tl.trans(here), K, LAYOUT)
    scale, other = scale_values(tl.trans(stored), SCALES)
    if SCALES == "e4m3":
        # Of the first and of the last 16 columns.
        scale = tl.where(tl.arange(0, PER_WORD)[None, :] < PER_WORD // 2, scale, other)
        other = 0.0
    w0, v0 = pair_values(words, 0, SCALES)
    w1, v1 = pair_values(words, 1, SCALES)
    w2, v2 = pair_values(words, 2, SCALES)
    w3, v3 = pair_values(words, 3, SCALES)
    first = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    second = tl.join(tl.join(v0, v2), tl.join(v1, v3))
    codes = tl.reshape(tl.join(first, second), (BLOCK // CHUNK, 4, PER_WORD // 2, 2))
    codes = tl.reshape(tl.permute(codes, (0, 2, 1, 3)), (BLOCK // CHUNK, PER_WORD, 4))
    zero = tl.zeros_like(scale) + other
    values = tl.reshape((codes - zero[:, :, None]) * scale[:, :, None], (BLOCK,))
    if scale_ptr is not None:
        values *= tl.load(scale_ptr + row)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    wait_for_previous(PDL)
    values = values.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * K + column, values, mask=column < K)


@dataclass(frozen=True, slots=True)
class DequantizeRows(KernelOperation):
    """out = data * scale, computed in float32 and rounded once, to nearest, ties to even; beyond
    float16 lie infinities.

    weight: of 8 or 4 bits [rows, columns], scales or none, no bias; out [rows, columns],
    contiguous, of a dtype of the kernels.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, or a bias.
    """

    weight: WeightMatrix
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        data, scale, bias = self.weight.pointers
        if not self.weight.narrow:
            raise ValueError(f"weights of {data.dtype}: must be of 8 or 4 bits")
        if bias is not None:
            raise ValueError("weights with a bias: a matrix has no place for it")
        rows, columns = self.weight.rows, self.weight.columns
        check_floats("out", self.out, (rows, columns), data.device)
        blocks = triton.cdiv(columns, BLOCK)
        if self.weight.packing is not None:
            return launch(
                _dequantize_packed_rows_kernel,
                (rows * blocks,),
                data,
                scale,
                self.out,
                blocks,
                K=columns,
                LAYOUT=self.weight.layout,
                BLOCK=BLOCK,
                PDL=pdl,
                num_warps=NUM_WARPS,
            )
        return launch(
            _dequantize_rows_kernel,
            (rows * blocks,),
            data,
            scale,
            self.out,
            columns,
            blocks,
            BLOCK=BLOCK,
            PDL=pdl,
            num_warps=NUM_WARPS,
        )

    def inputs(self, position: int) -> Tensors:
        return self.weights

    def reference(self, position: int) -> Tensors:
        return (dequantize_rows_reference(self.weight),)
