"""The rules give the tiles that were measured, or what follows from them, for public models."""

from dataclasses import replace

import pytest

from decodescope.kernels.host.tile import Tile
from decodescope.variants.model.source import presets
from decodescope.variants.steps.fused.tiling.shapes import StepShapes, TiledOperation
from decodescope.variants.steps.fused.tiling.tile_table import tile_key
from decodescope.variants.steps.fused.tiling.tiles import (
    default_tiles,
    kind_of,
    tile_candidates,
    tile_fits,
)
from tests.helpers.sizes import H200, SMALL_GPU, preset_shapes


def test_the_tiles_measured_on_the_h200_are_the_defaults_there() -> None:
    tiles = default_tiles(preset_shapes("llama-3.2-1b"), 132)
    assert tiles == {
        "qkv": Tile(8, 2048, 4),
        "attention": Tile(1, 128, 4, splits=16),
        "o": Tile(4, 2048, 2),
        "gate_up": Tile(8, 2048, 4),
        "down": Tile(4, 8192, 8, max_registers=128),
        "head": Tile(8, 2048, 4),
    }


def test_the_tiles_measured_of_experts_are_the_defaults() -> None:
    tiles = default_tiles(preset_shapes("qwen3-30b-a3b"), 132)
    assert not {"gate_up", "down"} & tiles.keys()
    assert tiles["router"] == Tile(1, 2048, 2)
    assert tiles["experts_gate_up"] == Tile(2, 2048, 1)
    # One warp holds two rows of eight experts, each in three blocks.
    assert tiles["experts_down"] == Tile(2, 256, 1, 3)
    narrow = preset_shapes("qwen3-30b-a3b", element_bytes=1)
    tiles = default_tiles(narrow, 132)
    assert tiles["router"] == Tile(1, 2048, 2)
    assert tiles["experts_gate_up"] == Tile(4, 2048, 1)
    assert tiles["experts_down"] == Tile(4, 256, 1, 3)
    # The tensor cores are worth a try.
    assert Tile(16, 1024, 4, 2) in tile_candidates("experts_gate_up", narrow, H200)


@pytest.mark.parametrize(
    ("head_dim", "element_bytes", "block"),
    [
        (32, 2, 128),
        (64, 2, 128),
        (128, 2, 128),
        (256, 2, 64),
        (64, 4, 64),
        (80, 4, 32),
        (130, 4, 16),
    ],
)
def test_an_attention_block_has_128_positions_or_what_registers_hold(
    head_dim: int, element_bytes: int, block: int
) -> None:
    shapes = preset_shapes("llama-3.2-1b", element_bytes=element_bytes)
    shapes = replace(shapes, head_dim=head_dim)
    assert default_tiles(shapes, 132)["attention"] == Tile(1, block, 4, splits=16)


@pytest.mark.parametrize(("head_dim", "splits"), [(32, 64), (64, 64), (128, 32), (256, 32)])
def test_attention_has_as_many_splits_as_fit_at_once(head_dim: int, splits: int) -> None:
    shapes = replace(preset_shapes("llama-3.2-1b", 1, 32_768), head_dim=head_dim)
    assert default_tiles(shapes, 132)["attention"].splits == splits


def test_a_batch_reads_few_activations_for_each_byte_of_converted_weights() -> None:
    shapes = preset_shapes("llama-3.1-8b", 16, element_bytes=1)
    assert default_tiles(shapes, 132)["gate_up"] == Tile(64, 256, 4, 4)
    # More tokens would leave 256 columns two stages.
    assert default_tiles(replace(shapes, batch=32), 132)["gate_up"] == Tile(64, 128, 4, 4)
    tiles = default_tiles(replace(shapes, int8=True), 132)
    assert tiles["gate_up"] == tiles["head"] == Tile(128, 128, 8, 4)
    assert tiles["down"] == Tile(128, 128, 8, 4, splits=8)
    # 64 rows would leave a multiprocessor of four without work.
    assert tiles["qkv"] == Tile(32, 512, 4, 3)


@pytest.mark.parametrize(
    ("name", "operation", "tile"),
    [
        ("llama-2-7b", "gate_up", Tile(8, 4096, 4)),
        ("llama-3.1-8b", "gate_up", Tile(8, 4096, 4)),
        ("llama-2-7b", "qkv", Tile(8, 4096, 4)),
        # 8 rows a program would leave 6 programs for each multiprocessor.
        ("llama-3.1-8b", "qkv", Tile(16, 1024, 4, 2)),
        ("llama-3.2-1b", "gate_up", Tile(16, 1024, 4, 2)),
        ("llama-3.1-8b", "down", Tile(16, 512, 2, 2, splits=4)),
        ("llama-2-7b", "head", Tile(32, 512, 2)),
    ],
)
def test_one_token_reads_narrow_rows_whole_if_there_are_many(
    name: str, operation: TiledOperation, tile: Tile
) -> None:
    shapes = preset_shapes(name, element_bytes=1)
    assert default_tiles(shapes, 132)[operation] == tile


def test_a_narrow_head_of_few_rows_has_as_many_programs_as_another_product() -> None:
    shapes = preset_shapes("llama-3.2-1b", element_bytes=1)
    assert default_tiles(shapes, 132)["head"] == Tile(32, 512, 2)
    assert default_tiles(replace(shapes, vocab=8_000), 132)["head"] == Tile(16, 1024, 4, 2)


@pytest.mark.parametrize(
    ("name", "block", "blocks"),
    [
        ("llama-3.2-1b", 8192, 1),
        ("llama-3.1-8b", 2048, 7),
        ("llama-2-7b", 4096, 3),
        ("qwen3-0.6b", 1024, 3),
        ("qwen2.5-0.5b", 1024, 5),
    ],
)
def test_rows_are_loaded_at_once_in_blocks_with_little_padding(
    name: str, block: int, blocks: int
) -> None:
    shapes = preset_shapes(name)
    tile = default_tiles(shapes, 132)["down"]
    assert (tile.columns, tile.num_stages) == (block, blocks)
    assert shapes.intermediate <= block * blocks <= shapes.intermediate * 9 / 8


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("batch", [1, 8])
def test_multiprocessors_have_work_if_the_shapes_allow_it(name: str, batch: int) -> None:
    """All of them at batch 1; half of them are enough for tiles of tensor-core products."""
    shapes = preset_shapes(name, batch)
    tiles = default_tiles(shapes, 132)
    busy = 132 if batch == 1 else 66
    # A router has fewer rows than there are multiprocessors.
    for operation in set(shapes.operations) - {"attention", "router"}:
        tile, shape = tiles[operation], shapes.shape(operation)
        each = 1 if operation == "experts_down" and batch == 1 else shape.matrices
        programs = -(-shape.rows // tile.rows) * tile.splits * each
        assert programs >= busy or tile.rows == 16


def test_experts_of_4_bits_have_tiles_of_their_own() -> None:
    shapes = replace(preset_shapes("gpt-oss-20b"), packed_experts="mxfp4")
    tiles = default_tiles(shapes, H200.multiprocessors)
    assert tiles["experts_gate_up"] == Tile(8, 1024, 1)
    assert tiles["experts_down"] == Tile(2, 1024, 1, 3)
    for operation in ("experts_gate_up", "experts_down"):
        assert len(tile_candidates(operation, shapes, H200)) > 5
        key = tile_key(operation, shapes)
        assert (key.element_bytes, key.packed) == (0, "mxfp4")
    assert (tile_key("qkv", shapes).element_bytes, tile_key("qkv", shapes).packed) == (2, "")


@pytest.mark.parametrize(
    ("batch", "gate_up", "down"),
    [
        # Eight experts have too few rows for tiles of 128.
        (2, Tile(64, 128, 4, 4), Tile(64, 128, 4, 4)),
        (8, Tile(128, 64, 4, 4), Tile(128, 64, 4, 4)),
        (64, Tile(128, 64, 4, 4), Tile(128, 64, 4, 4)),
    ],
)
def test_batches_of_4_bit_experts_have_enough_programs(
    batch: int, gate_up: Tile, down: Tile
) -> None:
    shapes = replace(
        preset_shapes("gpt-oss-20b", batch), experts=32, chosen=4, packed_experts="mxfp4"
    )
    tiles = default_tiles(shapes, H200.multiprocessors)
    assert (tiles["experts_gate_up"], tiles["experts_down"]) == (gate_up, down)


@pytest.mark.parametrize("activation_bytes", [2, 4])
@pytest.mark.parametrize("batch", [2, 17, 64])
@pytest.mark.parametrize(("hidden", "intermediate"), [(32, 32), (96, 160), (2880, 2880)])
def test_tiles_of_4_bit_batches_fit(
    hidden: int, intermediate: int, batch: int, activation_bytes: int
) -> None:
    shapes = replace(
        preset_shapes("gpt-oss-20b", batch),
        hidden=hidden,
        intermediate=intermediate,
        activation_bytes=activation_bytes,
        experts=32,
        chosen=4,
        packed_experts="mxfp4",
    )
    for operation in ("experts_gate_up", "experts_down"):
        found = tile_candidates(operation, shapes, SMALL_GPU)
        assert found[0] == default_tiles(shapes, SMALL_GPU.multiprocessors)[operation]
        assert all(tile.columns >= 32 for tile in found)


def of_4_bits(model: str, batch: int = 1, **changes: int) -> StepShapes:
    shapes = replace(preset_shapes(model, batch), weight_bytes=0, head_bytes=0, packed="int4")
    return replace(shapes, **changes)


def test_dense_matrices_of_4_bits_have_tiles_of_their_own() -> None:
    shapes = of_4_bits("llama-3.1-8b")
    tiles = default_tiles(shapes, H200.multiprocessors)
    assert tiles["gate_up"] == tiles["head"] == Tile(16, 4096, 4)
    assert tiles["o"] == Tile(8, 4096, 4)
    assert tiles["down"] == Tile(16, 2048, 2, splits=4)
    key = tile_key("down", shapes)
    assert (key.element_bytes, key.packed) == (0, "int4")
    assert tile_key("attention", shapes).packed == ""


@pytest.mark.parametrize("activation_bytes", [2, 4])
@pytest.mark.parametrize("batch", [1, 2, 33])
@pytest.mark.parametrize(("hidden", "intermediate"), [(32, 33), (100, 136), (4096, 14336)])
def test_tiles_of_dense_matrices_of_4_bits_fit(
    hidden: int, intermediate: int, batch: int, activation_bytes: int
) -> None:
    sizes = {"hidden": hidden, "intermediate": intermediate, "activation_bytes": activation_bytes}
    shapes = of_4_bits("llama-3.1-8b", batch, **sizes)
    for operation in shapes.operations:
        found = tile_candidates(operation, shapes, SMALL_GPU)
        default = default_tiles(shapes, SMALL_GPU.multiprocessors)[operation]
        assert found[0] == default or not tile_fits(default, operation, shapes, SMALL_GPU)
        assert operation == "attention" or all(tile.columns >= 32 for tile in found)


# As compiled for compute capability 8.9, Triton 3.6: bytes of shared memory.
@pytest.mark.parametrize(
    ("batch", "tile", "used"),
    [
        (16, Tile(32, 512, 4, 4), 106_496),
        (64, Tile(128, 128, 8, 4), 108_032),
        (16, Tile(32, 512, 4, 3), 81_920),
        (64, Tile(128, 128, 8, 3), 82_944),
    ],
)
def test_converted_weights_take_shared_memory_without_wgmma(
    batch: int, tile: Tile, used: int
) -> None:
    shapes = of_4_bits("llama-3.1-8b", batch)
    assert used <= kind_of("gate_up", shapes).converted_bytes(tile) <= used + 2048
    assert tile_fits(tile, "gate_up", shapes, SMALL_GPU) == (used <= SMALL_GPU.shared_bytes)
    assert tile_fits(tile, "gate_up", shapes, H200)
