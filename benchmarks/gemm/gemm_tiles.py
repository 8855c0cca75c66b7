"""Which tiles of a GEMM are worth measuring, by rule, and which were measured before."""

from dataclasses import dataclass, replace
from pathlib import Path

from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.variants.steps.fused.tiling.shapes import power_of_2_from
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu
from decodescope.variants.steps.fused.tiling.tile_table import (
    GemmKind,
    TileKey,
    cached_tiles,
    shipped_table,
)

MAX_STAGES = 8
MAX_SPLITS = 16

# Rows of W, columns of a block, programs that share a multiprocessor: what keeps at least 32 KB of
# weights under way in each, the most promising first. Four warps multiply 64 rows at once. Every
# program reads the columns of x that belong to its own, so more rows read x less often from L2.
_SIZES = (
    (64, 256, 2),
    (128, 256, 1),
    (64, 256, 1),
    (256, 128, 1),
    (64, 128, 4),
    (64, 512, 1),
    (128, 128, 2),
    (64, 512, 2),
    (64, 256, 3),
    (128, 128, 1),
    (64, 128, 3),
)
_WARPS = {64: 4, 128: 8, 256: 8}
# A plain GEMM: rows of W, columns of a block, warps, stages. Those of Triton's tutorial for FP8,
# and smaller ones, which give more multiprocessors work.
_PLAIN_TILES = (
    Tile(32, 128, 4, 6),
    Tile(32, 256, 4, 5),
    Tile(64, 128, 4, 5),
    Tile(64, 256, 4, 4),
    Tile(128, 128, 4, 4),
    Tile(256, 128, 8, 3),
)
_PLAIN_TOKENS = 64
# What a program takes beside its tile: barriers, and what the driver reserves.
_RESERVED_BYTES = 1280


@dataclass(frozen=True, slots=True)
class GemmWork:
    """One GEMM: `tokens` rows of x times W [rows, columns]."""

    kind: GemmKind
    rows: int
    columns: int
    tokens: int

    @property
    def x_bytes(self) -> int:
        """Bytes of one element of x."""
        return 1 if self.kind == "gemm_w8a8" else 2

    @property
    def key(self) -> TileKey:
        """The key of its tile in a table."""
        return TileKey(self.kind, self.rows, self.columns, 1, power_of_2_from(self.tokens), 1)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tile to measure; `token_block` is that of a plain GEMM."""

    tile: Tile
    token_block: int | None = None


def rule_tiles(work: GemmWork, gpu: TargetGpu) -> tuple[Tile, ...]:
    """Tiles whose programs all run at once, the default first.

    Each has as many splits as fill the GPU once, and as many stages as its share of a
    multiprocessor's shared memory holds. Few rows that would read more than half as much of x as
    of W come last. The most promising tile is also given twice the splits: the sums of some
    programs then overlap with the loads of others.
    """
    tiles = []
    x_bytes = padded_tokens(work.tokens) * work.x_bytes
    for rows, columns, programs in sorted(_SIZES, key=lambda size: -min(size[0], 2 * x_bytes)):
        block_bytes = columns * (rows + x_bytes)
        stages = min(MAX_STAGES, (gpu.shared_bytes // programs - _RESERVED_BYTES) // block_bytes)
        if stages < 2:
            continue
        blocks = -(-work.rows // rows)
        steps = -(-work.columns // columns)
        splits = max(1, min(gpu.multiprocessors * programs // blocks, MAX_SPLITS, steps))
        tiles.append(Tile(rows, columns, _WARPS[rows], stages, splits))
    best = tiles[0]
    if 2 * best.splits <= min(MAX_SPLITS, -(-work.columns // best.columns)):
        tiles.append(replace(best, splits=2 * best.splits))
    return tuple(dict.fromkeys(tiles))


def split_candidates(
    work: GemmWork, gpu: TargetGpu, folder: Path | None = None
) -> tuple[Candidate, ...]:
    """The tile that was measured before, if any (on this machine or as shipped), then the rule's.

    `folder` keeps this machine's measurements; None has none.
    """
    known = measured_tile(work, gpu, folder)
    first = () if known is None else (known,)
    return tuple(map(Candidate, dict.fromkeys((*first, *rule_tiles(work, gpu)))))


def measured_tile(work: GemmWork, gpu: TargetGpu, folder: Path | None) -> Tile | None:
    """The tile that was found for this GEMM on this machine, or else on a GPU of this name."""
    cached = {} if folder is None else cached_tiles(gpu, folder)
    return {**shipped_table().get(gpu.name, {}), **cached}.get(work.key)


def unsplit_candidates(work: GemmWork, gpu: TargetGpu) -> tuple[Candidate, ...]:
    """The same without splits: a program has its rows' whole inner dimension."""
    tiles = (replace(tile, splits=1) for tile in rule_tiles(work, gpu))
    return tuple(map(Candidate, dict.fromkeys(tiles)))


def plain_candidates(tokens: int) -> tuple[Candidate, ...]:
    """Tiles of a plain GEMM: with as many tokens as are needed, and with 64, from which on Hopper's
    FP8 tensor cores are used."""
    blocks = dict.fromkeys((padded_tokens(tokens), _PLAIN_TOKENS))
    return tuple(Candidate(tile, block) for block in blocks for tile in _PLAIN_TILES)
