"""W[r, k] = data[r, k] * scale[r] in the model's dtype: narrow weights for a product of cuBLAS.

A prompt reads W once for all of its tokens and is limited by the tensor cores, so the prefill
multiplies by an ordinary matrix. The decode kernels never need one: they convert in registers.

Bytes moved: an element and 2 or 4 bytes of W for each weight, 4 for each scale. PyTorch's
`data.to(dtype).mul_(scale)` reads and writes W once more.

Source: the formats and scales of `host/weights.py`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float32
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
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


@dataclass(frozen=True, slots=True)
class DequantizeRows(KernelOperation):
    """out = data * scale, computed in float32 and rounded once, to nearest, ties to even; beyond
    float16 lie infinities.

    weight: FP8 or INT8 [rows, columns], scales or none, no bias; out [rows, columns], contiguous,
    of a dtype of the kernels.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, or a bias.
    """

    weight: WeightMatrix
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        data, scale, bias = self.weight.pointers
        if data.element_size() != 1:
            raise ValueError(f"weights of {data.dtype}: must be FP8 or INT8")
        if bias is not None:
            raise ValueError("weights with a bias: a matrix has no place for it")
        rows, columns = self.weight.rows, self.weight.columns
        check_floats("out", self.out, (rows, columns), data.device)
        blocks = triton.cdiv(columns, BLOCK)
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
