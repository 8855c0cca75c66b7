"""The tiles that a machine measured join the table that comes with decodescope."""

from pathlib import Path

import pytest

from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.tile_table import (
    TileKey,
    decode_table,
    keep_tiles,
    shipped_table,
)
from tests.helpers.sizes import H200
from tools import ship_tiles

NEW = {TileKey("down", 24, 8, 1, batch=1, element_bytes=2): Tile(1, 64)}


def test_measured_tiles_are_added_and_all_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ship_tiles, "this_target_gpu", lambda: H200)
    monkeypatch.setattr(ship_tiles, "cache_folder", lambda: tmp_path)
    keep_tiles(H200, NEW, tmp_path)
    out = tmp_path / "table.json"
    ship_tiles.main(out)
    before = shipped_table()
    assert NEW.keys().isdisjoint(before[H200.name])
    assert decode_table(out.read_bytes()) == {**before, H200.name: {**before[H200.name], **NEW}}
