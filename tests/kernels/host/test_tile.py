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
def test_refuses_what_is_no_power_of_two(field: str, size: int) -> None:
    sizes: dict[str, Any] = {"rows": 4, "columns": 64, field: size}
    with pytest.raises(ValueError, match=f"tile {field} {size}: must be a power of two"):
        Tile(**sizes)


@pytest.mark.parametrize("counts", [{"num_stages": 0}, {"splits": 0}, {"splits": -1}])
def test_refuses_no_stage_and_no_split(counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="below 1"):
        Tile(4, 64, **counts)
