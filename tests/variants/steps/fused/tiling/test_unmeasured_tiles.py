"""Tiles that were not measured are reported once, with the command that measures them."""

import pytest

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused.tiling.choice import ChosenTiles, report_unmeasured
from decodescope.variants.steps.fused.tiling.rules import default_tiles
from decodescope.variants.steps.fused.tiling.shapes import TILED_OPERATIONS
from tests.helpers.sizes import H200, preset_shapes

TILES = default_tiles(preset_shapes("llama-3.2-1b"), 132)
MEASURED = dict.fromkeys(TILED_OPERATIONS, "table")


def test_unmeasured_tiles_are_reported_once_with_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ChosenTiles(TILES, MEASURED | {"o": "default", "head": "default"})
    workload = DecodeWorkload(2, 300, 50, "fp16")
    for _ in range(2):
        report_unmeasured(chosen, H200, "my models/one", workload)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "tiles not measured on NVIDIA H200 for o, head: decodescope bench kernels --tune --model "
        "'my models/one' --batch 2 --context 300 --tokens 50 --dtype fp16"
    )


def test_measured_tiles_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report_unmeasured(ChosenTiles(TILES, MEASURED), H200, "m", DecodeWorkload())
    assert capsys.readouterr().err == ""
