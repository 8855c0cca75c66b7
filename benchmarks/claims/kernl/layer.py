"""What kernl measured its kernels on: a layer of Llama 2 7B in float16."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks.claims.racing import Work
from benchmarks.claims.report import Race, Row
from benchmarks.claims.rows import speed_up
from benchmarks.kernels.kernel_bench import TOLERANCES
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.steps.fused.tiling.shapes import StepShapes, TiledOperation
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import ChosenTiles, TileSource, tiles_for

DTYPE = torch.float16
SEED = 1234
TOLERANCE = TOLERANCES["fp16"]

# All tokens of a call are at this position: our batched kernels serve sequences, not a prompt.
POSITION = 5
POSITIONS = 16
_THETA = 10_000.0

NOTES = (
    "The source's micro-benchmarks (its repository, ELS-RD/kernl, experimental/llama-v2) have 16 "
    "tokens in float16; a decode step has 1. Its 16 tokens are at positions 0 to 15, here all are "
    f"at position {POSITION}: the same arithmetic and the same bytes.",
    "The source timed launches from the host with events around each call; it used no CUDA graph. "
    "It published ratios and no times, so how close its kernels came to their bound is not known. "
    "Its repository has the code that was timed but no figures: the ratios are the article's.",
    "PyTorch's sequences round to float16 after nearly every launch. Each rounding may add half "
    "the distance of two neighbouring numbers to the error, hence their wider tolerances.",
)


_TILE_SOURCES: dict[TileSource, str] = {
    "cache": "measured on this machine",
    "table": "measured on this kind of GPU",
    "default": "by rule",
}


def _tiles_here(shapes: StepShapes) -> ChosenTiles:
    return tiles_for(shapes, this_target_gpu())


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of Llama 2 7B, the numbers of tokens to measure, and where; `tiles` chooses those
    of our kernels."""

    hidden: int = 4096
    heads: int = 32
    head_dim: int = 128
    intermediate: int = 11008
    tokens: tuple[int, ...] = (1, 16)
    eps: float = 1e-6
    device: str = "cuda"
    tiles: Callable[[StepShapes], ChosenTiles] = _tiles_here

    def shapes(self, tokens: int) -> StepShapes:
        """What tiles depend on."""
        size = DTYPE.itemsize
        return StepShapes(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.head_dim,
            intermediate=self.intermediate,
            vocab=32_000,
            batch=tokens,
            capacity=POSITIONS,
            activation_bytes=size,
            weight_bytes=size,
            head_bytes=size,
            kv_bytes=size,
        )

    def tile(self, operation: TiledOperation, shapes: StepShapes) -> tuple[Tile, str]:
        """The tile of one of our kernels, and in words what it is and where it comes from."""
        chosen = self.tiles(shapes)
        tile, source = chosen.tiles[operation], _TILE_SOURCES[chosen.sources[operation]]
        return tile, f"tile of {tile.rows} x {tile.columns}, {source}"

    def normal(self) -> Callable[..., torch.Tensor]:
        """Draws `normal(*shape, std=1.0)` in float16, the same numbers in every measurement."""
        generator = torch.Generator(self.device).manual_seed(SEED)

        def draw(*shape: int, std: float = 1.0) -> torch.Tensor:
            values = torch.empty(shape, dtype=DTYPE, device=self.device)
            return values.normal_(0.0, std, generator=generator)

        return draw

    def norm(self, draw: Callable[..., torch.Tensor]) -> Norm:
        """An RMSNorm of hidden states, whose weight a kernel cannot leave out unnoticed."""
        return Norm(1.0 + draw(self.hidden, std=0.2), self.eps)

    def rope_table(self) -> RopeTable:
        """Cosines and sines of the first positions."""
        exponents = torch.arange(0, self.head_dim, 2, device=self.device) / self.head_dim
        positions = torch.arange(POSITIONS, device=self.device)
        angles = torch.outer(positions, _THETA**-exponents)
        return RopeTable(angles.cos(), angles.sin())

    def position(self) -> torch.Tensor:
        """`POSITION` on the device."""
        return torch.full((1,), POSITION, dtype=torch.int32, device=self.device)


LLAMA_2_7B = Layer()


def normed_first(x: torch.Tensor, norm: Norm) -> tuple[list[RmsNorm], torch.Tensor, Norm | None]:
    """What precedes a product of RMSNorm(x): its launches, what the product reads, and the norm
    that it applies itself, which only the kernels of one token do."""
    if len(x) == 1:
        return [], x, norm
    normed = torch.empty_like(x)
    return [RmsNorm(x, norm, normed)], normed, None


def product_work(x: torch.Tensor, norm: Norm, weight: WeightMatrix, outputs: int) -> Work:
    """RMSNorm(x) times a matrix, with so many numbers written."""
    read = x.nbytes + norm.weight.nbytes + weight.bytes_read
    flops = 2 * len(x) * weight.rows * weight.columns
    return Work(read + outputs * DTYPE.itemsize, flops, "fp16")


def tokens_text(tokens: int) -> str:
    """The size of a race in words."""
    return "1 token (decode)" if tokens == 1 else f"{tokens} tokens"


def both_ratios(
    what: str, published: float | None, race: Race, baseline: str, ours: str, floor_ns: float
) -> Iterator[Row]:
    """The ratio on the GPU alone, then that of calls which the host launches."""
    for launched, how in ((False, "in a CUDA graph"), (True, "launched by the host")):
        text = f"{what}, {race.size}, {how}"
        yield speed_up(text, race, baseline, ours, published, floor_ns, launched)
