"""The choice of the tiles of a step: measured ones if there are any, else the defaults."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import DEFAULT_TILES
from decodescope.kernels.host.tile import Tile
from decodescope.variants.machine.cache_folder import cache_folder
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.candidates import tile_candidates
from decodescope.variants.steps.fused.tiling.shapes import (
    TILED_OPERATIONS,
    StepShapes,
    StepTiles,
    TiledOperation,
)
from decodescope.variants.steps.fused.tiling.tile_limits import TargetGpu, tile_fits
from decodescope.variants.steps.fused.tiling.tile_table import (
    TileEntry,
    TileKey,
    cached_entries,
    shipped_table,
    tile_key,
)

TileSource = Literal["cache", "table", "default"]


@dataclass(frozen=True, slots=True)
class ChosenTiles:
    """Tiles for a step, and where each comes from."""

    tiles: StepTiles
    sources: Mapping[TiledOperation, TileSource]

    @property
    def unmeasured(self) -> tuple[TiledOperation, ...]:
        """Operations whose tile is only a default."""
        return tuple(name for name in TILED_OPERATIONS if self.sources[name] == "default")


def tiles_for(shapes: StepShapes, gpu: TargetGpu, folder: Path | None = None) -> ChosenTiles:
    """The tiles for one step: measured on this machine, else shipped as measured, else the default.

    `folder` is where measurements are kept, None for the user's cache folder. A measured tile that
    does not fit these shapes is ignored.

    Raises:
        MissingRequirement: no tile fits the GPU's shared memory; names the limit.
    """
    measured: tuple[tuple[TileSource, dict[TileKey, Tile]], ...] = (
        ("cache", _by_key(cached_entries(gpu, folder or cache_folder()))),
        ("table", _by_key(shipped_table().get(gpu.name, ()))),
    )
    tiles: dict[TiledOperation, Tile] = {}
    sources: dict[TiledOperation, TileSource] = {}
    for operation in TILED_OPERATIONS:
        key = tile_key(operation, shapes)
        fitting = (
            (source, entries[key])
            for source, entries in measured
            if key in entries and tile_fits(entries[key], operation, shapes, gpu)
        )
        default: tuple[TileSource, Tile] = ("default", tile_candidates(operation, shapes, gpu)[0])
        sources[operation], tiles[operation] = next(fitting, default)
    return ChosenTiles(StepTiles(**tiles), sources)


def _by_key(entries: tuple[TileEntry, ...]) -> dict[TileKey, Tile]:
    return {entry.key: entry.tile for entry in entries}


def report_unmeasured(
    chosen: ChosenTiles, gpu: TargetGpu, model: str, workload: DecodeWorkload, spec: VariantSpec
) -> tuple[Finding, ...]:
    """The tiles that are only defaults, and the command that measures them: one finding, and once
    in a process a line on stderr; none if all tiles were measured."""
    if chosen.unmeasured:
        command = ["decodescope", "tune", "--model", model]
        command += ["--batch", str(workload.batch), "--context", str(workload.context)]
        command += ["--tokens", str(workload.new_tokens), "--dtype", workload.dtype]
        if (formats := spec.formats) != VariantSpec("fused"):
            command += ["--variant", str(formats)]
        names = ", ".join(chosen.unmeasured)
        line = f"tiles not measured on {gpu.name} for {names}: {shlex.join(command)}"
        _write_once(f"{line}\n")
        return (Finding(DEFAULT_TILES, line),)
    return ()


@cache
def _write_once(line: str) -> None:
    sys.stderr.write(line)
