"""out = x W^T of FP8 as Triton's tutorial writes a matrix product: what `split_k_gemm` has to beat.

A program has a block of tokens and a block of W's rows and loops over the whole inner dimension,
tokens as the side of the tensor cores with many rows, operands by pointers. Nothing is split.

Source: Triton tutorial 3, "Matrix Multiplication", here for one block of tokens, with the scales of
tokens and rows of W applied to the sums.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from benchmarks.gemm.split_k_gemm import split_k_gemm_reference
from decodescope.kernels.host.checks import check_tensor, check_unsplit
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix


@triton.jit(do_not_specialize=["M"])
def _plain_gemm_kernel(
    x_ptr,
    x_scale_ptr,
    w_ptr,
    scale_ptr,
    out_ptr,
    M,
    N,
    K: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, BLOCK)
    x_places = x_ptr + (tokens % M)[:, None] * K + lane[None, :]
    w_places = w_ptr + (rows % N).to(tl.int64)[None, :] * K + lane[:, None]
    sums = tl.zeros((TOKENS, ROWS), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        x = tl.load(x_places, mask=(start + lane < K)[None, :], other=0.0)
        w = tl.load(w_places, mask=(start + lane < K)[:, None], other=0.0)
        sums = tl.dot(x, w, sums)
        x_places += BLOCK
        w_places += BLOCK
    sums *= tl.load(x_scale_ptr + tokens, mask=tokens < M, other=0.0)[:, None]
    sums *= tl.load(scale_ptr + rows, mask=rows < N, other=0.0)[None, :]
    mask = (tokens < M)[:, None] & (rows < N)[None, :]
    tl.store(
        out_ptr + tokens[:, None] * N + rows[None, :], sums.to(out_ptr.dtype.element_ty), mask=mask
    )


@dataclass(frozen=True, slots=True)
class PlainGemm(KernelOperation):
    """out[m, n] = x_scale[m] * scale[n] * sum over k of W[n, k] x[m, k], x and W of E4M3.

    x [tokens, columns], x_scale float32 [tokens], W with scales and without bias, out [tokens,
    rows] of any floating-point dtype. `token_block` tokens belong to one program.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a tile with splits.
    """

    x: torch.Tensor
    x_scale: torch.Tensor
    weight: WeightMatrix
    out: torch.Tensor
    tile: Tile
    token_block: int

    def launch(self, pdl: bool = False) -> Launch:
        x, weight, tile = self.x, self.weight, self.tile
        tokens, device = int(x.shape[0]), x.device
        check_tensor("weights", weight.data, weight.data.shape, torch.float8_e4m3fn, device)
        check_tensor("x", x, (tokens, weight.columns), torch.float8_e4m3fn, device)
        check_tensor("x_scale", self.x_scale, (tokens,), torch.float32, device)
        check_tensor("out", self.out, (tokens, weight.rows), self.out.dtype, device)
        check_unsplit(tile)
        if weight.scale is None or weight.bias is not None or pdl:
            raise ValueError("a plain GEMM needs scales, and has neither bias nor PDL")
        return launch(
            _plain_gemm_kernel,
            (triton.cdiv(weight.rows, tile.rows), triton.cdiv(tokens, self.token_block)),
            x,
            self.x_scale,
            weight.data,
            weight.scale,
            self.out,
            tokens,
            weight.rows,
            K=weight.columns,
            TOKENS=self.token_block,
            ROWS=tile.rows,
            BLOCK=tile.columns,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )

    def inputs(self, position: int) -> Tensors:
        return self.x, self.x_scale, *self.weights

    def reference(self, position: int) -> Tensors:
        return (split_k_gemm_reference(self.x, self.x_scale, self.weight),)
