"""Measured tiles are written down, found again for the same sizes, and never taken on trust."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling import tile_table
from decodescope.variants.steps.fused.tiling.shapes import StepShapes, StepTiles
from decodescope.variants.steps.fused.tiling.tile_table import (
    TileTable,
    cached_tiles,
    decode_table,
    keep_tiles,
    shipped_table,
    tile_key,
    tiles_by_key,
    tiles_for,
)
from decodescope.variants.steps.fused.tiling.tiles import default_tiles, tile_fits
from tests.helpers.sizes import DENSE_OPERATIONS, H200, any_shapes, preset_shapes
from tools.ship_tiles import encode_table, table_with

SHAPES = preset_shapes("llama-3.2-1b")
TUNED: StepTiles = {
    "qkv": Tile(4, 2048, 2),
    "attention": Tile(1, 64, 2, splits=8),
    "o": Tile(2, 2048, 1),
    "gate_up": Tile(4, 2048, 2),
    "down": Tile(1, 8192, 4),
    "head": Tile(8, 2048, 8),
}
ENTRY = (
    b'{"key":{"operation":"o","rows":2048,"columns":2048,"unit":1,"batch":1,"element_bytes":2},'
    b'"tile":{"rows":2,"columns":2048,"num_warps":1,"num_stages":1,"splits":1}}'
)


@pytest.fixture
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_table, "shipped_table", dict)


def ship(monkeypatch: pytest.MonkeyPatch, table: TileTable) -> None:
    monkeypatch.setattr(tile_table, "shipped_table", lambda: table)


@given(any_shapes())
def test_a_table_survives_json(shapes: StepShapes) -> None:
    table = {"A": tiles_by_key(shapes, default_tiles(shapes, 132)), "B": {}}
    assert decode_table(encode_table(table)) == table


def test_e4m3_activations_have_tiles_of_their_own() -> None:
    """The products with narrow weights are other kernels with them; attention and a head in the
    model's dtype are not."""
    narrow = replace(SHAPES, weight_bytes=1)
    fp8_x = replace(narrow, fp8_x=True)
    same = {name for name in DENSE_OPERATIONS if tile_key(name, narrow) == tile_key(name, fp8_x)}
    assert same == {"attention", "head"}
    tiles = tiles_by_key(fp8_x, TUNED, ["o"])
    assert b'"element_bytes": 1,\n    "fp8_x": true\n' in encode_table({"A": tiles})


def test_an_entry_reads_as_documented() -> None:
    tiles = decode_table(b'{"NVIDIA H200":[' + ENTRY + b"]}")["NVIDIA H200"]
    assert tiles == {tile_key("o", SHAPES): TUNED["o"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"rows":2,', b'"rows":3,'),
        (b'"rows":2,', b'"rows":"2",'),
        (b'"splits":1', b'"splits":0'),
        (b'"operation":"o"', b'"operation":"v"'),
        (b'"unit":1', b'"unit":1,"head":1'),
        (b'"key"', b'"gpu":"x","key"'),
        (b'"batch":1,', b""),
        (b"}}", b"}}," + ENTRY),
    ],
)
def test_a_table_in_another_format_is_refused(old: bytes, new: bytes) -> None:
    assert old in ENTRY
    with pytest.raises(msgspec.DecodeError):
        decode_table(b'{"NVIDIA H200":[' + ENTRY.replace(old, new, 1) + b"]}")


def test_the_shipped_table_has_only_tiles_that_can_run() -> None:
    table = shipped_table()
    assert "NVIDIA H200" in table
    assert encode_table(table) == Path(tile_table.__file__).with_suffix(".json").read_bytes()


def test_new_entries_replace_old_ones_of_their_key() -> None:
    old = tiles_by_key(SHAPES, default_tiles(SHAPES, 132))
    other = tiles_by_key(replace(SHAPES, batch=4), TUNED)
    table = table_with({"A": {**old, **other}, "B": old}, "A", tiles_by_key(SHAPES, TUNED))
    assert table == {"A": {**other, **tiles_by_key(SHAPES, TUNED)}, "B": old}
    assert len(table["A"]) == 2 * len(DENSE_OPERATIONS)


@pytest.mark.parametrize(("batch", "counted"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16)])
def test_batches_share_a_measurement_rounded_up_to_a_power_of_two(batch: int, counted: int) -> None:
    assert tile_key("qkv", replace(SHAPES, batch=batch)).batch == counted


def test_cache_lengths_share_a_measurement_and_other_sizes_do_not() -> None:
    key = tile_key("attention", SHAPES)
    assert tile_key("attention", replace(SHAPES, capacity=1025)) == key
    for changed in ({"capacity": 2049}, {"kv_heads": 4}, {"head_dim": 32}, {"kv_bytes": 4}):
        assert tile_key("attention", replace(SHAPES, **changed)) != key
    assert tile_key("attention", replace(SHAPES, kv_heads=4, head_dim=128)) != key


def test_kept_tiles_are_found_only_with_the_same_gpu_and_versions(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    keep_tiles(H200, tiles_by_key(SHAPES, TUNED), folder)
    assert cached_tiles(H200, folder) == tiles_by_key(SHAPES, TUNED)
    for changed in (
        {"name": "NVIDIA H100"},
        {"driver": "590.1"},
        {"triton": "3.7.0"},
        {"decodescope": "0.2"},
        {"multiprocessors": 66},
    ):
        assert cached_tiles(msgspec.structs.replace(H200, **changed), folder) == {}


def test_a_second_model_is_added_and_another_version_starts_empty(tmp_path: Path) -> None:
    other = preset_shapes("qwen3-0.6b")
    keep_tiles(H200, tiles_by_key(SHAPES, TUNED), tmp_path)
    keep_tiles(H200, tiles_by_key(other, TUNED), tmp_path)
    assert len(cached_tiles(H200, tmp_path)) == 2 * len(DENSE_OPERATIONS)
    newer = msgspec.structs.replace(H200, triton="3.7.0")
    keep_tiles(newer, tiles_by_key(other, TUNED), tmp_path)
    assert len(cached_tiles(newer, tmp_path)) == len(DENSE_OPERATIONS)
    assert cached_tiles(H200, tmp_path) == {}


def test_a_damaged_cache_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_table: None
) -> None:
    keep_tiles(H200, tiles_by_key(SHAPES, TUNED), tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert cached_tiles(H200, tmp_path) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    for index in range(0, len(whole), 3):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x41]) + whole[index + 1 :])
        tiles = tiles_for(SHAPES, H200, tmp_path).tiles
        assert all(tile_fits(tiles[name], name, SHAPES, H200) for name in DENSE_OPERATIONS)


def test_a_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    keep_tiles(H200, tiles_by_key(SHAPES, TUNED), blocked / "cache")
    assert "not kept" in capsys.readouterr().err.splitlines()[-1]


def test_the_cache_comes_before_the_table_and_the_table_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = default_tiles(SHAPES, H200.multiprocessors)
    shipped = {H200.name: {tile_key("down", SHAPES): Tile(1, 8192, 8)}}
    ship(monkeypatch, {})
    nothing = tiles_for(SHAPES, H200, tmp_path)
    assert nothing.tiles == defaults
    assert nothing.unmeasured == DENSE_OPERATIONS
    ship(monkeypatch, shipped)
    found = tiles_for(SHAPES, H200, tmp_path)
    assert found.tiles == {**defaults, "down": Tile(1, 8192, 8)}
    assert found.sources["down"] == "table"
    assert "down" not in found.unmeasured
    assert tiles_for(SHAPES, msgspec.structs.replace(H200, name="B"), tmp_path).tiles == defaults
    keep_tiles(H200, tiles_by_key(SHAPES, TUNED), tmp_path)
    own = tiles_for(SHAPES, H200, tmp_path)
    assert own.tiles == TUNED
    assert set(own.sources.values()) == {"cache"}
    assert own.unmeasured == ()


def test_a_measurement_serves_every_size_of_its_key(tmp_path: Path, no_table: None) -> None:
    for batch, served in ((1, (1,)), (8, (5, 6, 7, 8))):
        measured = replace(SHAPES, batch=batch)
        keep_tiles(H200, tiles_by_key(measured, default_tiles(measured, 132)), tmp_path)
        for other, capacity in ((other, capacity) for other in served for capacity in (1025, 2048)):
            shapes = replace(SHAPES, batch=other, capacity=capacity)
            assert tiles_for(shapes, H200, tmp_path).unmeasured == ()


@pytest.mark.parametrize(
    ("operation", "tile"),
    [
        ("qkv", Tile(1, 2048)),
        ("gate_up", Tile(8, 2048, splits=2)),
        ("o", Tile(64, 2048, 8)),
        ("attention", Tile(1, 8)),
        ("attention", Tile(1, 128, splits=65)),
        ("attention", Tile(1, 128, num_stages=2)),
        ("head", Tile(4, 2048, 32)),
    ],
)
def test_a_measured_tile_that_cannot_run_is_not_taken(
    tmp_path: Path, no_table: None, operation: str, tile: Tile
) -> None:
    keep_tiles(H200, tiles_by_key(SHAPES, {**TUNED, operation: tile}), tmp_path)  # type: ignore[arg-type]
    found = tiles_for(SHAPES, H200, tmp_path)
    assert found.unmeasured == (operation,)
