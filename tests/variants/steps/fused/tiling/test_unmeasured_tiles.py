"""Tiles that were not measured are reported once, with the command that measures them."""

import pytest

from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.cuts import Split
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.tile_table import ChosenTiles, report_unmeasured
from decodescope.variants.steps.fused.tiling.tiles import default_tiles
from tests.helpers.sizes import DENSE_OPERATIONS, H200, preset_shapes

TILES = default_tiles(preset_shapes("llama-3.2-1b"), 132)
FUSED = VariantSpec("fused", cuda_graph=True)
MEASURED = dict.fromkeys(DENSE_OPERATIONS, "table")


def test_unmeasured_tiles_are_reported_once_with_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ChosenTiles(TILES, MEASURED | {"o": "default", "head": "default"})
    workload = DecodeWorkload(2, 300, 50, "fp16")
    for _ in range(2):
        (found,) = report_unmeasured(chosen, H200, "my models/one", workload, FUSED, Split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "tiles not measured on NVIDIA H200 for head, o: decodescope tune --model "
        "'my models/one' --batch 2 --context 300 --tokens 50 --dtype fp16"
    )
    assert found == Finding("default_tiles", line)


def test_the_command_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ChosenTiles(TILES, MEASURED | {"o": "default"})
    spec = VariantSpec.parse("fused+graph+int8+head16+kv_fp8_e5m2-pdl")
    report_unmeasured(chosen, H200, "m", DecodeWorkload(), spec, Split())
    assert capsys.readouterr().err.endswith(" --variant fused+int8+head16+kv_fp8_e5m2\n")


@pytest.mark.parametrize(("ep", "words"), [(False, " --tp 4\n"), (True, " --tp 4 --ep\n")])
def test_the_command_tunes_the_part_of_a_rank(
    ep: bool, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ChosenTiles(TILES, MEASURED | {"o": "default"})
    split = Split(Ranks(3, 4), ep=ep)
    report_unmeasured(chosen, H200, "m", DecodeWorkload(), FUSED, split)
    assert capsys.readouterr().err.endswith(words)


def test_measured_tiles_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ChosenTiles(TILES, MEASURED)
    assert report_unmeasured(chosen, H200, "m", DecodeWorkload(), FUSED, Split()) == ()
    assert capsys.readouterr().err == ""
