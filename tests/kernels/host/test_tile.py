from typing import Any

import pytest

from decodescope.kernels.host.tile import Tile


@pytest.mark.parametrize("size", [1, 2, 64, 16_384])
def test_takes_powers_of_two(size: int) -> None:
    tile = Tile(size, size, num_warps=size)
    assert (tile.rows, tile.columns, tile.num_warps) == (size, size, size)


def test_stages_and_splits_may_be_any_number() -> None:
    tile = Tile(4, 2048, num_stages=3, splits=7)
    assert (tile.num_warps, tile.num_stages, tile.splits) == (4, 3, 7)


@pytest.mark.parametrize("field", ["rows", "columns", "num_warps"])
@pytest.mark.parametrize("size", [0, -4, 3, 96])
def test_refuses_sizes_that_are_not_powers_of_two(field: str, size: int) -> None:
    sizes: dict[str, Any] = {"rows": 4, "columns": 64, field: size}
    with pytest.raises(ValueError, match=f"tile {field} {size}: must be a power of two"):
        Tile(**sizes)


@pytest.mark.parametrize("counts", [{"num_stages": 0}, {"splits": 0}, {"splits": -1}])
def test_refuses_no_stage_and_no_split(counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="below 1"):
        Tile(4, 64, **counts)


@pytest.mark.parametrize("registers", [0, -1, 256])
def test_refuses_registers_that_no_thread_has(registers: int) -> None:
    with pytest.raises(ValueError, match=f"max_registers {registers}: must be 1 to 255"):
        Tile(4, 64, max_registers=registers)


@pytest.mark.parametrize(
    ("columns", "tile", "blocks"),
    [
        (2048, Tile(4, 2048, num_stages=3), 1),
        (2049, Tile(4, 2048, num_stages=3), 2),
        (8192, Tile(2, 512, num_stages=5), 5),
        (8192, Tile(2, 512, num_stages=5, splits=8), 2),
        (33, Tile(1, 16, num_stages=9, splits=5), 1),
    ],
)
def test_no_more_blocks_are_loaded_early_than_a_row_has(
    columns: int, tile: Tile, blocks: int
) -> None:
    assert tile.blocks_ahead(columns) == blocks
