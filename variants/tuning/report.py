"""The result of `decodescope tune`, as JSON and for a terminal. Times are in ns."""

from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.report import Environment
from decodescope.analyzer.text.formatting import microseconds, shorten
from decodescope.kernels.host.tile import MAX_REGISTERS, Tile
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation
from decodescope.variants.steps.fused.tiling.tile_table import TileSource
from decodescope.variants.steps.fused.tiling.tuner import Trial, TunedOperation

SCHEMA_VERSION = 1

_MACHINE = ("gpu", "driver", "cuda", "torch", "triton", "transformers", "decodescope", "commit")
_REFUSAL_CELLS = 60


class RoundSpread(Struct, frozen=True):
    """One figure of every round, in order, and their median and range: the range is the noise."""

    median: float
    min: float
    max: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "RoundSpread":
        return cls(median(values), min(values), max(values), tuple(values))

    def over(self, other: "RoundSpread") -> "RoundSpread":
        return RoundSpread.of([a / b for a, b in zip(self.rounds, other.rounds, strict=True)])


class TuningReport(Struct, frozen=True):
    """`decodescope tune --json`: the tiles of one model's fused step, measured in the step.

    Steps are decoded at `position`, in a KV cache of context + tokens. `tile_sources` has the
    sources of the tiles that the search started from. Each of `passes` lists the operations in the
    order of tuning. `before_ns` and `after_ns` are the step's time with the first and the last
    tiles, in rounds that time both in turn, each the median of `replays` replays;
    `before_over_after` is their ratio within a round. The step is that of the first of `tp` ranks,
    which adds up nothing with others.
    """

    schema_version: int
    model: str
    dtype: str
    batch: int
    context: int
    tokens: int
    position: int
    replays: int
    tile_sources: dict[TiledOperation, TileSource]
    tiles: StepTiles
    passes: tuple[tuple[TunedOperation, ...], ...]
    before_ns: RoundSpread
    after_ns: RoundSpread
    before_over_after: RoundSpread
    environment: Environment
    variant: str = "fused"
    tp: int = 1
    ep: bool = False


def tune_table(result: TuningReport) -> RenderableType:
    """A row for each tile of each operation in the last pass, the fastest step first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("operation", "tile", ""):
        table.add_column(name, overflow="fold")
    table.add_column("step µs", justify="right", overflow="fold")
    for tuned in result.passes[-1]:
        for trial in tuned.ranking:
            name = tuned.operation if trial is tuned.ranking[0] else ""
            table.add_row(name, tile_text(trial.tile), _mark(trial, tuned), _trial_time(trial))
        table.add_section()
    title = (
        f"tiles of the fused step of {result.model}, {result.dtype}, batch {result.batch}, "
        f"position {result.position}{f', a rank of {result.tp}' if result.tp > 1 else ''}"
    )
    before, after = (spread_text(ns, microseconds) for ns in (result.before_ns, result.after_ns))
    notes = (
        "tile: rows x columns, warps, stages, splits, r: most registers; each measured in the "
        "whole step",
        f"step µs: {before} to {after}; before/after {spread_text(result.before_over_after)}",
        machine_text(result.environment),
    )
    return Group(Text(title, style="bold"), table, *(Text(note, style="dim") for note in notes))


def machine_text(environment: Environment) -> str:
    return ", ".join(f"{key} {environment[key]}" for key in _MACHINE if environment.get(key))


def tile_text(tile: Tile) -> str:
    """A tile in one cell: rows x columns, warps, stages, splits, and its limit of registers."""
    sizes = (tile.num_warps, tile.num_stages, tile.splits)
    limit = f", r{tile.max_registers}" if tile.max_registers < MAX_REGISTERS else ""
    return f"{tile.rows} x {tile.columns}, {', '.join(map(str, sizes))}{limit}"


def spread_text(spread: RoundSpread, text: Callable[[float], str] = "{:.2f}".format) -> str:
    """The median of a ratio, or of a figure that `text` writes, and its range over the rounds."""
    return "{} ({}-{})".format(*map(text, (spread.median, spread.min, spread.max)))


def _mark(trial: Trial, tuned: TunedOperation) -> str:
    marks = (("chosen", tuned.chosen), ("before", tuned.before))
    return ", ".join(name for name, tile in marks if trial.tile == tile)


def _trial_time(trial: Trial) -> str:
    if trial.step_ns is not None:
        return microseconds(trial.step_ns)
    return shorten(f"not possible: {(trial.refusal or '').partition(chr(10))[0]}", _REFUSAL_CELLS)
