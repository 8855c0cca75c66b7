"""Tiles that were measured, and the tiles of a step: measured ones if there are any, else defaults.

tile_table.json has those that come with decodescope. It maps a GPU's name, as torch reports it, to
a list of entries. An entry has what was measured, `key`, and the best tile for it:

    {"NVIDIA H200": [{"key": {"operation": "down", "rows": 2048, "columns": 8192, "unit": 1,
                              "batch": 1, "element_bytes": 2},
                      "tile": {"rows": 2, "columns": 8192, "num_warps": 8, "num_stages": 1,
                               "splits": 1, "max_registers": 128}}]}

rows, columns, unit and matrices (1 if it is missing) are those of `Shape`; batch is rounded up to a
power of two; element_bytes is the size of a weight, or of an element of K and V: 1 for FP8 and
INT8, 2 for bf16 and fp16, 4 for fp32; `"int8": true` tells integers from FP8, and `"fp8_x": true`
that x is E4M3 as well; 0 for weights of 4 bits, with their format in `packed`. Keys are unique. A
GEMM by itself has `unit` 1, and its tokens are `batch`. Tiles measured on this machine are kept in
the user's cache folder, a file for each kind of GPU.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from decodescope.analyzer.io.cache_folder import cache_folder, keep_measured, kept_measured
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import DEFAULT_TILES
from decodescope.kernels.host.tile import Tile
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.cuts import Split
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    StepTiles,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu
from decodescope.variants.steps.fused.tiling.tiles import tile_candidates, tile_fits

# A GEMM by itself (`benchmarks/gemm/split_k_gemm.py`), whose tiles the bundled table holds.
GemmKind = Literal["gemm_w8a8", "gemm_w8a16", "gemm_int8"]
TileSource = Literal["cache", "table", "default"]


class TileKey(Struct, frozen=True, order=True, forbid_unknown_fields=True, omit_defaults=True):
    """The case that a tile was measured for; operations with equal keys have the same best tile."""

    operation: TiledOperation | GemmKind
    rows: int
    columns: int
    unit: int
    batch: int
    element_bytes: int
    matrices: int = 1
    int8: bool = False
    fp8_x: bool = False
    packed: str = ""


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    key: TileKey
    tile: Tile


class _Kept(Struct, frozen=True):
    gpu: TargetGpu
    entries: tuple[_Entry, ...]


MeasuredTiles = Mapping[TileKey, Tile]
TileTable = Mapping[str, MeasuredTiles]


@dataclass(frozen=True, slots=True)
class ChosenTiles:
    """Tiles for a step, and where each comes from."""

    tiles: StepTiles
    sources: Mapping[TiledOperation, TileSource]

    @property
    def unmeasured(self) -> tuple[TiledOperation, ...]:
        return tuple(name for name, source in self.sources.items() if source == "default")


def tiles_for(shapes: StepShapes, gpu: TargetGpu, folder: Path | None = None) -> ChosenTiles:
    """The tiles for one step: measured on this machine, else shipped as measured, else the default.

    `folder` is where measurements are kept, None for the user's cache folder. A measured tile that
    does not fit these shapes is ignored.

    Raises:
        MissingRequirement: no tile fits the GPU's shared memory; names the limit.
    """
    measured: dict[TileSource, MeasuredTiles] = {
        "cache": cached_tiles(gpu, folder or cache_folder()),
        "table": shipped_table().get(gpu.name, {}),
    }
    tiles: dict[TiledOperation, Tile] = {}
    sources: dict[TiledOperation, TileSource] = {}
    for operation in shapes.operations:
        key = tile_key(operation, shapes)
        fitting = (
            (source, known[key])
            for source, known in measured.items()
            if key in known and tile_fits(known[key], operation, shapes, gpu)
        )
        default: tuple[TileSource, Tile] = ("default", tile_candidates(operation, shapes, gpu)[0])
        sources[operation], tiles[operation] = next(fitting, default)
    return ChosenTiles(tiles, sources)


def report_unmeasured(
    chosen: ChosenTiles,
    gpu: TargetGpu,
    model: str,
    workload: DecodeWorkload,
    spec: VariantSpec,
    split: Split,
) -> tuple[Finding, ...]:
    """The tiles that are only defaults, and the command that measures them: one finding, and once
    in a process a line on stderr, of several ranks by the first; none if all tiles were measured.
    """
    if not chosen.unmeasured:
        return ()
    command = ["decodescope", "tune", "--model", model]
    command += ["--batch", str(workload.batch), "--context", str(workload.context)]
    command += ["--tokens", str(workload.new_tokens), "--dtype", workload.dtype]
    if (formats := spec.formats) != VariantSpec("fused"):
        command += ["--variant", str(formats)]
    if not split.ranks.alone:
        command += ["--tp", str(split.ranks.size), *["--ep"] * split.ep]
    names = ", ".join(chosen.unmeasured)
    line = f"tiles not measured on {gpu.name} for {names}: {shlex.join(command)}"
    if not split.ranks.rank:
        _write_once(f"{line}\n")
    return (Finding(DEFAULT_TILES, line),)


@cache
def _write_once(line: str) -> None:
    sys.stderr.write(line)


def tile_key(operation: TiledOperation, shapes: StepShapes) -> TileKey:
    shape = shapes.shape(operation)
    element_bytes = shapes.element_bytes(operation)
    narrow = element_bytes == 1 and not operation.endswith("attention")
    return TileKey(
        operation,
        shape.rows,
        shape.columns,
        shape.unit,
        batch=power_of_2_from(shapes.batch),
        element_bytes=element_bytes,
        matrices=shape.matrices,
        int8=shapes.int8 and narrow,
        fp8_x=shapes.fp8_x and narrow,
        packed=shapes.packed_format(operation),
    )


def tiles_by_key(
    shapes: StepShapes, tiles: StepTiles, operations: Iterable[TiledOperation] | None = None
) -> dict[TileKey, Tile]:
    """The tiles of `operations`, None for all of the step's, by what they were measured for."""
    return {tile_key(name, shapes): tiles[name] for name in operations or shapes.operations}


def decode_table(data: bytes) -> TileTable:
    """A table from JSON.

    Raises:
        msgspec.DecodeError: another format, an invalid tile, or a key that occurs twice.
    """
    table = {}
    for gpu, entries in msgspec.json.decode(data, type=dict[str, tuple[_Entry, ...]]).items():
        table[gpu] = {entry.key: entry.tile for entry in entries}
        if len(table[gpu]) < len(entries):
            raise msgspec.ValidationError(f"{gpu}: a key comes twice")
    return table


def shipped_table() -> TileTable:
    return decode_table(Path(__file__).with_name("tile_table.json").read_bytes())


def cached_tiles(gpu: TargetGpu, folder: Path) -> dict[TileKey, Tile]:
    """The tiles measured on this kind of GPU with this driver, Triton and decodescope.

    A file from other versions is ignored, and so is a damaged one, with a line on stderr.
    """
    path = _path(gpu, folder)
    try:
        kept = kept_measured(path, _Kept)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        sys.stderr.write(f"measured tiles ignored: {path}: {error}\n")
        return {}
    return {entry.key: entry.tile for entry in kept.entries} if kept.gpu == gpu else {}


def keep_tiles(gpu: TargetGpu, measured: MeasuredTiles, folder: Path) -> Path | None:
    """Add tiles for later runs; returns their file, None if that fails (stderr says why)."""
    path = _path(gpu, folder)
    tiles = {**cached_tiles(gpu, folder), **measured}
    entries = tuple(_Entry(key, tiles[key]) for key in sorted(tiles))
    return path if keep_measured(path, _Kept(gpu, entries), "measured tiles") else None


def _path(gpu: TargetGpu, folder: Path) -> Path:
    return folder / f"tiles-{re.sub(r'[^a-z0-9]+', '-', gpu.name.lower())}.json"
