"""Tiles that were measured: their file format, and those that come with decodescope.

tile_table.json maps a GPU's name, as torch reports it, to a list of entries. An entry has what was
measured, `key`, and the best tile for it:

    {"NVIDIA H200": [{"key": {"operation": "down", "rows": 2048, "columns": 8192, "unit": 1,
                              "batch": 1, "element_bytes": 2},
                      "tile": {"rows": 2, "columns": 8192, "num_warps": 8, "num_stages": 1,
                               "splits": 1}}]}

rows, columns and unit are those of `Shape`; batch is rounded up to a power of two; element_bytes is
2 for bf16 and fp16, 4 for fp32. Keys are unique.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.shapes import (
    OPERATIONS,
    Operation,
    StepShapes,
    StepTiles,
    power_of_2_from,
)


class TileKey(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tile was measured for; operations with the same key have the same best tile."""

    operation: Operation
    rows: int
    columns: int
    unit: int
    batch: int
    element_bytes: int


class TileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One measured choice."""

    key: TileKey
    tile: Tile


TileTable = Mapping[str, tuple[TileEntry, ...]]


def tile_key(operation: Operation, shapes: StepShapes) -> TileKey:
    """The key of one operation of a step."""
    shape = shapes.shape(operation)
    batch = power_of_2_from(shapes.batch)
    return TileKey(operation, shape.rows, shape.columns, shape.unit, batch, shapes.element_bytes)


def tile_entries(
    shapes: StepShapes, tiles: StepTiles, operations: Iterable[Operation] = OPERATIONS
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
    """A table as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"


def shipped_table() -> TileTable:
    """The table that comes with decodescope."""
    return decode_table(Path(__file__).with_name("tile_table.json").read_bytes())
