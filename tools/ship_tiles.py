"""Adds the tiles that were measured on this machine to the table that comes with decodescope.

    python -m tools.ship_tiles [OUT]

`decodescope tune` and `python -m benchmarks gemm` keep them in the user's cache folder, for this
kind of GPU and these versions. The whole table is written to OUT, by default in its own place.
"""

import sys
from pathlib import Path

import msgspec

from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.io.files import write_atomically
from decodescope.variants.steps.fused.tiling import tile_table
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import (
    MeasuredTiles,
    TileTable,
    cached_tiles,
    shipped_table,
)

TABLE = Path(tile_table.__file__).with_name("tile_table.json")


def table_with(table: TileTable, gpu: str, tiles: MeasuredTiles) -> TileTable:
    """The table with these tiles of that GPU added, or in place of those with the same key."""
    return {**table, gpu: {**table.get(gpu, {}), **tiles}}


def encode_table(table: TileTable) -> bytes:
    """A table as indented JSON; the entries of a GPU are in the order of their keys."""
    entries = {
        gpu: [{"key": key, "tile": tiles[key]} for key in sorted(tiles)]
        for gpu, tiles in table.items()
    }
    return msgspec.json.format(msgspec.json.encode(entries), indent=1) + b"\n"


def main(out: Path = TABLE) -> None:
    gpu = this_target_gpu()
    tiles = cached_tiles(gpu, cache_folder())
    write_atomically(out, encode_table(table_with(shipped_table(), gpu.name, tiles)))
    sys.stderr.write(f"{len(tiles)} tiles of {gpu.name} are in {out}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
