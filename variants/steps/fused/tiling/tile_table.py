"""Tiles that were measured: those that come with decodescope, and those of this machine.

tile_table.json maps a GPU's name, as torch reports it, to a list of entries. An entry has what was
measured, `key`, and the best tile for it:

    {"NVIDIA H200": [{"key": {"operation": "down", "rows": 2048, "columns": 8192, "unit": 1,
                              "batch": 1, "element_bytes": 2},
                      "tile": {"rows": 2, "columns": 8192, "num_warps": 8, "num_stages": 1,
                               "splits": 1, "max_registers": 128}}]}

rows, columns and unit are those of `Shape`; batch is rounded up to a power of two; element_bytes is
the size of a weight, or of an element of K and V: 1 for FP8 and INT8, 2 for bf16 and fp16, 4 for
fp32; `"int8": true` tells integers from FP8, and `"fp8_x": true` that x is E4M3 as well. Keys are
unique. A GEMM by itself has `unit` 1, and its tokens are `batch`. Tiles measured on this machine
are kept in the user's cache folder, a file for each kind of GPU.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from decodescope.kernels.host.tile import Tile
from decodescope.variants.machine.cache_folder import keep_measured
from decodescope.variants.steps.fused.tiling.shapes import (
    TILED_OPERATIONS,
    StepShapes,
    StepTiles,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.tile_limits import TargetGpu

# A GEMM by itself (`kernels/ops/split_k_gemm.py`): what x and the weights are.
GemmKind = Literal["gemm_w8a8", "gemm_w8a16", "gemm_int8"]


class TileKey(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The case that a tile was measured for; operations with equal keys have the same best tile."""

    operation: TiledOperation | GemmKind
    rows: int
    columns: int
    unit: int
    batch: int
    element_bytes: int
    int8: bool = False
    fp8_x: bool = False


class TileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One measured choice."""

    key: TileKey
    tile: Tile


TileTable = Mapping[str, tuple[TileEntry, ...]]


def tile_key(operation: TiledOperation, shapes: StepShapes) -> TileKey:
    """The key of one operation of a step."""
    shape = shapes.shape(operation)
    element_bytes = shapes.element_bytes(operation)
    narrow = element_bytes == 1 and operation != "attention"
    return TileKey(
        operation,
        shape.rows,
        shape.columns,
        shape.unit,
        batch=power_of_2_from(shapes.batch),
        element_bytes=element_bytes,
        int8=shapes.int8 and narrow,
        fp8_x=shapes.fp8_x and narrow,
    )


def tile_entries(
    shapes: StepShapes, tiles: StepTiles, operations: Iterable[TiledOperation] = TILED_OPERATIONS
) -> tuple[TileEntry, ...]:
    """One step's tiles of some operations as entries."""
    return tuple(TileEntry(tile_key(name, shapes), tiles.of(name)) for name in operations)


def updated(old: Iterable[TileEntry], new: Iterable[TileEntry]) -> tuple[TileEntry, ...]:
    """All entries, ordered by key; a new entry replaces an old one with the same key."""
    tiles = {entry.key: entry.tile for entry in (*old, *new)}
    keys = sorted(tiles, key=lambda key: msgspec.structs.astuple(key))
    return tuple(TileEntry(key, tiles[key]) for key in keys)


def table_with(table: TileTable, gpu: str, entries: Iterable[TileEntry]) -> TileTable:
    """The table with these entries of that GPU added, or in place of those with the same key."""
    return {**table, gpu: updated(table.get(gpu, ()), entries)}


def decode_table(data: bytes) -> TileTable:
    """A table from JSON.

    Raises:
        msgspec.DecodeError: another format, an invalid tile, or a key that occurs twice.
    """
    table = msgspec.json.decode(data, type=dict[str, tuple[TileEntry, ...]])
    for gpu, entries in table.items():
        if len({entry.key for entry in entries}) < len(entries):
            raise msgspec.ValidationError(f"{gpu}: a key comes twice")
    return table


def encode_table(table: TileTable) -> bytes:
    return msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"


def shipped_table() -> TileTable:
    return decode_table(Path(__file__).with_name("tile_table.json").read_bytes())


class _Kept(Struct, frozen=True):
    gpu: TargetGpu
    entries: tuple[TileEntry, ...]


def cached_entries(gpu: TargetGpu, folder: Path) -> tuple[TileEntry, ...]:
    """The tiles measured on this kind of GPU with this driver, Triton and decodescope.

    A file from other versions is ignored, and so is a damaged one, with a line on stderr.
    """
    path = _path(gpu, folder)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        sys.stderr.write(f"measured tiles ignored: {path}: {error}\n")
        return ()
    return kept.entries if kept.gpu == gpu else ()


def keep_tiles(gpu: TargetGpu, measured: Iterable[TileEntry], folder: Path) -> Path | None:
    """Add tiles for later runs; returns the file that keeps them.

    If that fails, writes the reason to stderr and returns None.
    """
    path = _path(gpu, folder)
    entries = updated(cached_entries(gpu, folder), measured)
    return path if keep_measured(path, _Kept(gpu, entries), "measured tiles") else None


def _path(gpu: TargetGpu, folder: Path) -> Path:
    return folder / f"tiles-{re.sub(r'[^a-z0-9]+', '-', gpu.name.lower())}.json"
