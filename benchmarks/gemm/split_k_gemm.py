"""out = x W^T for 1 to 64 tokens and weights of FP8 or INT8: a product limited by the weights.

Bytes moved: W with its scales and bias once, x with its scales once, out once. With splits also
2 * splits * rows * tokens floats of partial sums (with padding), which stay in the L2 cache.

W is the side of the tensor cores with many rows and the tokens are the narrow side, padded to 16,
32 or 64, so no row of W is read twice. `tile.splits` programs share a block of rows: few rows still
give every multiprocessor work. Their sums are added in a fixed order (`device/weight_rows.py`).

E4M3 x is multiplied as it is, with E4M3 or E5M2 weights, and the sum of each block, times the
token's scale, is added in float32 (why: `device/batched_product.py`). x of 16 bits is multiplied in
float16, which holds every FP8 and INT8 element exactly; weights are converted on the way from
shared memory to the tensor cores. Blocks come through tensor descriptors (the copy engine, TMA),
which take rows of a multiple of 16 bytes; other rows are loaded by pointers.

Sources: split-K as in TK-GEMM (Hoque, Wright, Yang et al., "Accelerating Llama3 FP8 Inference with
Triton Kernels", PyTorch blog, 2024), here without atomic additions; short sums on the tensor cores
as in DeepSeek-V3 (arXiv 2412.19437, 3.3.2).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from decodescope.kernels.device.batched_product import prefetch_rows
from decodescope.kernels.device.elements import as_float16, in_word_order, saturated_float16
from decodescope.kernels.device.overlap import CAPABILITY, allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import program_rows, scale_and_bias, split_sums
from decodescope.kernels.host.checks import check_apart, check_float, check_tensor
from decodescope.kernels.host.operation import Launch, Tensors, launch
from decodescope.kernels.host.product import Product, check_x_scale
from decodescope.kernels.host.tile import MIN_DOT, Tile, padded_tokens
from decodescope.kernels.host.weights import FP8_X, WeightMatrix
from decodescope.kernels.host.workspace import MAX_BATCH, Workspace
from decodescope.kernels.ops.linear import linear_reference

_NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
_WIDE_X = (torch.float16, torch.bfloat16)
# A tensor descriptor takes rows of whole 16 bytes, and blocks of at most 256 of them.
_ALIGNMENT = 16
_MOST_ROWS = 256
# Elements of a row that `prefetch_rows` prefetches: a KiB.
_PREFETCHED = tl.constexpr(1024)


def split_k_gemm_reference(
    x: torch.Tensor, x_scale: torch.Tensor | None, weight: WeightMatrix
) -> torch.Tensor:
    """x_scale x W^T + bias in float64. x [tokens, columns], x_scale [tokens] or None for ones."""
    wide = x.double()
    return linear_reference(wide if x_scale is None else wide * x_scale.double()[:, None], weight)


@triton.jit(do_not_specialize=["M"])
def _split_k_gemm_kernel(
    x_ptr,
    x_blocks,
    x_scale_ptr,
    w_ptr,
    w_blocks,
    scale_ptr,
    bias_ptr,
    out_ptr,
    partial_ptr,
    counter_ptr,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    EVEN: tl.constexpr = K % BLOCK == 0
    narrow: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 8
    block = tl.program_id(0)
    split = tl.program_id(1)
    w_ptr, inside, rows = program_rows(w_ptr, block, N, K, ROWS)
    # The splits begin in the same pieces of a row: each prefetches another one.
    ahead = tl.minimum(split * _PREFETCHED, K - _PREFETCHED if K > _PREFETCHED else 0)
    prefetch_rows(w_ptr + ahead, inside, 0, K, BLOCK, 1, PDL, LAYOUT)
    # Loaded before the loop, so that the end of the kernel does not wait for them.
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows[:, None], (rows < N)[:, None])
    wait_for_previous(PDL)
    token = tl.arange(0, TOKENS)
    if x_scale_ptr is not None:
        x_scale = tl.load(x_scale_ptr + token, mask=token < M, other=0.0)
    lane = tl.arange(0, BLOCK)
    w_rows = w_ptr + inside[:, None] * K
    x_rows = x_ptr + token[:, None] * K
    present = (token < M)[:, None]
    sums = tl.zeros((ROWS, TOKENS), dtype=tl.float32)
    # The splits take blocks in turn, so that together they read long pieces of each row.
    for start in range(split * BLOCK, K, SPLITS * BLOCK):
        # Both forms give zeros for tokens and columns past the end.
        if w_blocks is not None:
            w = w_blocks.load([block * ROWS, start])
            x = x_blocks.load([0, start])
        else:
            columns = start + lane
            some = present if EVEN else present & (columns < K)[None, :]
            x = tl.load(x_rows + columns[None, :], mask=some, other=0.0)
            places = w_rows + columns[None, :]
            if EVEN:
                w = tl.load(places, eviction_policy="evict_first")
            else:
                mask = (columns < K)[None, :]
                w = tl.load(places, mask=mask, other=0.0, eviction_policy="evict_first")
        if narrow:
            # Not by max_num_imprecise_acc: in a pipelined loop Triton then adds the sums of the
            # tensor cores before it has waited for them.
            sums += tl.dot(w, tl.trans(x)) * x_scale[None, :]
        else:
            if x.dtype == tl.bfloat16:
                x = saturated_float16(x.to(tl.float32))
            w = as_float16(in_word_order(w))
            x = in_word_order(x)
            sums = tl.dot(w, tl.trans(x), sums)
    sums, finishes = split_sums(sums, partial_ptr, counter_ptr, block, split, SPLITS)
    if finishes:
        sums = sums * scale + bias
        tl.store(
            out_ptr + token[None, :] * N + rows[:, None],
            sums.to(out_ptr.dtype.element_ty),
            mask=(rows < N)[:, None] & (token < M)[None, :],
        )


@dataclass(frozen=True, slots=True)
class SplitKGemm(Product):
    """out[m, n] = x_scale[m] * sum over k of W[n, k] x[m, k] + bias[n].

    W (FP8 or INT8) has its own scale for each row. x [tokens, columns] is E4M3, with FP8 weights
    and a float32 scale for each token, or float16 or bfloat16 without scales (None; values beyond
    float16's range become its largest). out [tokens, rows] is float32, float16 or bfloat16. 1 to 64
    tokens; everything contiguous on one device. Sums are float32 and rounded once.

    With more than one split the workspace holds splits * rows (rounded up to the tile) * padded
    tokens floats and a counter for each block of rows.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; out in x's memory; a tile below
            16 x 16 (with FP8 x, of fewer than 32 columns) or of more than 256 rows; a workspace
            that is too small; E4M3 x on a GPU without FP8 tensor cores.
    """

    x: torch.Tensor
    x_scale: torch.Tensor | None
    weight: WeightMatrix
    out: torch.Tensor
    tile: Tile
    workspace: Workspace

    def launch(self, pdl: bool = False) -> Launch:
        x, weight, tile = self.x, self.weight, self.tile
        self._check()
        tokens = int(x.shape[0])
        blocks = triton.cdiv(weight.rows, tile.rows)
        shared_blocks = blocks if tile.splits > 1 else 0
        padded = padded_tokens(tokens)
        self.workspace.check(
            tile.splits * shared_blocks * tile.rows * padded, shared_blocks, x.device
        )
        x_blocks, w_blocks = _described(x, padded, weight.data, tile)
        return launch(
            _split_k_gemm_kernel,
            (blocks, tile.splits),
            x,
            x_blocks,
            self.x_scale,
            weight.data,
            w_blocks,
            weight.scale,
            weight.bias,
            self.out,
            self.workspace.partials,
            self.workspace.counters,
            tokens,
            N=weight.rows,
            K=weight.columns,
            LAYOUT=weight.layout,
            TOKENS=padded,
            ROWS=tile.rows,
            BLOCK=tile.columns,
            SPLITS=tile.splits,
            PDL=pdl,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )

    def reference(self, position: int) -> Tensors:
        return (linear_reference(self.values, self.weight),)

    def _check(self) -> None:
        x, weight, tile = self.x, self.weight, self.tile
        if x.dim() != 2 or not 1 <= x.shape[0] <= MAX_BATCH:
            raise ValueError(f"x {list(x.shape)}: must be [1 to {MAX_BATCH}, {weight.columns}]")
        if x.dtype != FP8_X and x.dtype not in _WIDE_X:
            raise ValueError(f"x is {x.dtype}: must be one of {[FP8_X, *_WIDE_X]}")
        if weight.data.dtype not in _NARROW:
            raise ValueError(f"weights of {weight.data.dtype}: must be one of {list(_NARROW)}")
        tokens, device = int(x.shape[0]), weight.data.device
        check_tensor("x", x, (tokens, weight.columns), x.dtype, device)
        check_float("out", self.out)
        check_tensor("out", self.out, (tokens, weight.rows), self.out.dtype, device)
        check_apart("out", self.out, x)
        check_x_scale(x, self.x_scale, weight)
        least = 2 * MIN_DOT if x.dtype == FP8_X else MIN_DOT
        if not MIN_DOT <= tile.rows <= _MOST_ROWS or tile.columns < least:
            raise ValueError(
                f"tile of {tile.rows} x {tile.columns}: must have {MIN_DOT} to {_MOST_ROWS} rows "
                f"and at least {least} columns"
            )


def _described(
    x: torch.Tensor, tokens: int, data: torch.Tensor, tile: Tile
) -> tuple[TensorDescriptor | None, TensorDescriptor | None]:
    """Descriptors of the blocks of x and of the weights; None where the copy engine lacks them."""
    aligned = all(
        tensor.data_ptr() % _ALIGNMENT == 0 and tensor.stride(0) * tensor.itemsize % _ALIGNMENT == 0
        for tensor in (x, data)
    )
    if not aligned or (x.is_cuda and torch.cuda.get_device_capability(x.device) < CAPABILITY):
        return None, None
    return (
        TensorDescriptor.from_tensor(x, [tokens, tile.columns]),
        TensorDescriptor.from_tensor(data, [tile.rows, tile.columns]),
    )
