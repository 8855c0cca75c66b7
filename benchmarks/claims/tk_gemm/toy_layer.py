"""An attention layer of Llama-3-70B as a user of PyTorch writes it around an FP8 Triton GEMM."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gemm.gemm_tiles import GemmWork, measured_tile, rule_tiles
from benchmarks.gemm.split_k_gemm import SplitKGemm
from benchmarks.kernels.operands import SEED
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.kernels.host.weights import FP8_X, WeightMatrix, largest_value, quantized_rows
from decodescope.kernels.host.workspace import Workspace, new_workspace
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu

DTYPE = torch.bfloat16


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One attention layer, and the tokens in its KV cache; those of Llama-3-70B if not given."""

    hidden: int = 8192
    heads: int = 64
    kv_heads: int = 8
    head_dim: int = 128
    length: int = 1024

    @property
    def kv_rows(self) -> int:
        """Outputs of the projection of K, and of V."""
        return self.kv_heads * self.head_dim


class Fp8Linear(nn.Module):
    """y = scale (codes W^T) with E4M3 weights: an output and a launch of the split-K GEMM."""

    def __init__(self, weight: WeightMatrix, tile: Tile, workspace: Workspace) -> None:
        super().__init__()
        self.weight = weight
        self._tile = tile
        self._workspace = workspace

    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out = torch.empty(len(codes), self.weight.rows, dtype=DTYPE, device=codes.device)
        SplitKGemm(codes, scale, self.weight, out, self._tile, self._workspace).launch()
        return out


class ToyAttention(nn.Module):
    """Q, K and V, RoPE, the write into the KV cache, attention and O of one token, without norm and
    residual; random weights that preserve the size of activations."""

    def __init__(self, shape: LayerShape, gpu: TargetGpu, device: str) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator(device).manual_seed(SEED)

        def normal(*size: int) -> torch.Tensor:
            return torch.empty(size, dtype=DTYPE, device=device).normal_(generator=generator)

        width = shape.heads * shape.head_dim
        sizes = {"q": (width, shape.hidden), "k": (shape.kv_rows, shape.hidden)}
        sizes |= {"v": sizes["k"], "o": (shape.hidden, width)}
        works = {name: GemmWork("gemm_w8a8", *size, 1) for name, size in sizes.items()}
        tiles = {name: _tile(work, gpu) for name, work in works.items()}
        floats = max(
            tile.splits * (works[name].rows + tile.rows) * padded_tokens(1)
            for name, tile in tiles.items()
        )
        workspace = new_workspace(floats, max(shape.hidden, width), device)

        def linear(name: str) -> Fp8Linear:
            matrix = normal(*sizes[name]).mul_(sizes[name][1] ** -0.5)
            weight = WeightMatrix(*quantized_rows(matrix, "fp8_e4m3"))
            return Fp8Linear(weight, tiles[name], workspace)

        self.q, self.k, self.v, self.o = (linear(name) for name in sizes)
        self.x = normal(1, shape.hidden)
        rows = (1, shape.kv_heads, shape.length + 1, shape.head_dim)
        self.keys, self.values = normal(*rows), normal(*rows)
        self.row = torch.full((1,), shape.length, device=device)
        frequencies = 5e5 ** -(torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim)
        angles = (shape.length * frequencies).repeat(2)
        self.cos, self.sin = angles.cos().to(DTYPE), angles.sin().to(DTYPE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [1, hidden] after the layer, [1, hidden]."""
        codes, scale = token_codes(x)
        q, k, v = (one(codes, scale) for one in (self.q, self.k, self.v))
        self.keys.index_copy_(2, self.row, self._rotated(k))
        self.values.index_copy_(2, self.row, self._heads(v))
        attended = functional.scaled_dot_product_attention(
            self._rotated(q), self.keys, self.values, enable_gqa=True
        )
        out: torch.Tensor = self.o(*token_codes(attended.reshape(1, -1)))
        return out

    def forget(self) -> None:
        """Make the rows of this token NaN, so that a layer that does not write them is wrong."""
        self.keys[:, :, -1] = float("nan")
        self.values[:, :, -1] = float("nan")

    def reference(self) -> torch.Tensor:
        """The layer of `x` in float64, with what the layer stores rounded as it does: the results
        of the first products, and activations in E4M3."""

        def product(linear: Fp8Linear, x: torch.Tensor) -> torch.Tensor:
            codes, scale = token_codes(x)
            return (codes.double() * scale[:, None].double()) @ linear.weight.dense().T

        def stored(x: torch.Tensor) -> torch.Tensor:
            return x.to(DTYPE).double()

        q, k, v = (stored(product(one, self.x)) for one in (self.q, self.k, self.v))
        keys = torch.cat((self.keys[:, :, :-1].double(), self._rotated(k)), dim=2)
        values = torch.cat((self.values[:, :, :-1].double(), self._heads(v)), dim=2)
        attended = functional.scaled_dot_product_attention(
            self._rotated(q), keys, values, enable_gqa=True
        )
        return product(self.o, stored(attended.reshape(1, -1)))

    @property
    def bytes_moved(self) -> int:
        """Weights, K and V and x read once, the new rows and the result written once."""
        matrices = sum(one.weight.bytes_read for one in (self.q, self.k, self.v, self.o))
        return matrices + self.keys.nbytes + self.values.nbytes + 2 * self.x.nbytes

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, 1, self.shape.head_dim)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        x = self._heads(x)
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin


def token_codes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [tokens, features] as E4M3 and a float32 scale for each token, in PyTorch's operators."""
    largest = largest_value(FP8_X)
    scale = x.float().abs().amax(dim=-1) / largest
    return (x / scale[:, None]).clamp(-largest, largest).to(FP8_X), scale


def _tile(work: GemmWork, gpu: TargetGpu) -> Tile:
    return measured_tile(work, gpu, cache_folder()) or rule_tiles(work, gpu)[0]
