"""The results of `bench kernels` and `bench gemm` for a terminal."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.report import Environment
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    microseconds,
    percent,
    shorten,
)
from decodescope.kernels.host.tile import MAX_REGISTERS, Tile
from decodescope.variants.bench.gemm_report import PEERS, GemmBenchmark, GemmFigures
from decodescope.variants.bench.gemm_tiles import Candidate
from decodescope.variants.bench.report import (
    BlockBenchmark,
    BlockFigures,
    KernelBenchmark,
    KernelFigures,
    LaunchTimes,
    RoundSpread,
    TuneBenchmark,
)
from decodescope.variants.steps.fused.tiling.tuner import Trial, TunedOperation

_MACHINE = ("gpu", "driver", "cuda", "torch", "triton", "transformers", "decodescope", "commit")
_REFUSAL_CELLS = 60


def kernel_table(result: KernelBenchmark) -> RenderableType:
    """A row for each kernel: bytes, time and bandwidth of a launch, one by one and overlapped."""
    columns = ("bytes", "µs", "p10-p90", "rate", "of peak", "PDL µs", "of peak")
    table = _table(("operation", "kernel", "shape"), columns)
    for kernel in result.kernels:
        name = f"{kernel.operation}{'' if kernel.cold else ' *'}"
        cells = [name, kernel.kernel, kernel.shape, bytes_size(kernel.bytes_moved)]
        table.add_row(*cells, *_time_cells(kernel))
    peak = result.measured_peak_bytes_per_s
    title = (
        f"{result.model}, {result.dtype}, batch {result.batch}, context {result.context}: "
        f"read peak {bytes_size(peak)}/s, L2 {bytes_size(result.l2_bytes)}"
    )
    notes = ["times are per launch in a CUDA graph; PDL: launches overlap"]
    if not all(kernel.cold for kernel in result.kernels):
        notes.append("* operands are in L2, as they are in a step; the others come from memory")
    return _page(title, table, notes, result.errors, result.environment)


def block_table(result: BlockBenchmark) -> RenderableType:
    """A row for each dtype and cache length: the four times, the ratios, and the cosines."""
    columns = ("eager µs", "graphed", "fused µs", "graphed")
    ratios = ("eager/fused", "eager/graphed", "both graphed", "1 - cosine", "eager's")
    table = _table(("dtype", "cache"), (*columns, *ratios))
    for block in result.blocks:
        table.add_row(block.dtype, f"{block.cache_length}", *_block_cells(block))
    title = (
        f"one attention block of {result.model}, batch {result.batch}, "
        f"{result.rounds} rounds of {result.calls} blocks"
    )
    notes = ["medians over the rounds, ratios with their range; cosines to float32"]
    return _page(title, table, notes, result.errors, result.environment)


def tune_table(result: TuneBenchmark) -> RenderableType:
    """A row for each tile of each operation in the last pass, the fastest step first."""
    table = _table(("operation", "tile", ""), ("step µs",))
    for tuned in result.passes[-1]:
        for trial in tuned.ranking:
            name = tuned.operation if trial is tuned.ranking[0] else ""
            table.add_row(name, _tile(trial.tile), _mark(trial, tuned), _trial_time(trial))
        table.add_section()
    title = (
        f"tiles of the fused step of {result.model}, {result.dtype}, batch {result.batch}, "
        f"position {result.position}"
    )
    ranges = " to ".join(_step_range(spread) for spread in (result.before_ns, result.after_ns))
    notes = [
        "tile: rows x columns, warps, stages, splits, r: most registers; each measured in the "
        "whole step",
        f"step µs: {ranges}; before/after {_ratio(result.before_over_after)}",
    ]
    return _page(title, table, notes, result.errors, result.environment)


def gemm_table(result: GemmBenchmark) -> RenderableType:
    """A row for each GEMM at each number of tokens: its times, and the peers' times ÷ its own."""
    figures = ("µs", "p10-p90", "rate", "of peak", *(f"x {name}" for name in PEERS))
    table = _table(("tokens", "GEMM", "tile"), figures)
    for size in result.sizes:
        for gemm in size.gemms:
            tokens = f"{size.tokens}" if gemm is size.gemms[0] else ""
            table.add_row(tokens, gemm.name, _candidate(gemm.candidate), *_gemm_cells(gemm))
        table.add_section()
    title = (
        f"x W^T with W {result.rows} x {result.columns}: read peak "
        f"{bytes_size(result.measured_peak_bytes_per_s)}/s, L2 {bytes_size(result.l2_bytes)}, "
        f"{result.rounds} rounds"
    )
    notes = [
        "times are per launch in a CUDA graph, weights from memory; _pdl: launches overlap",
        "tile: rows x columns, warps, stages, splits; x NAME: how many times as fast as NAME",
    ]
    found = ((gemm.name, gemm.note) for size in result.sizes for gemm in size.gemms if gemm.note)
    notes += [f"{name}: {note}" for name, note in dict.fromkeys(found)]
    return _page(title, table, notes, result.errors, result.environment)


def _gemm_cells(gemm: GemmFigures) -> list[str]:
    times = gemm.times
    if times is None:
        return [shorten(gemm.error or "", _REFUSAL_CELLS), *[UNKNOWN] * (3 + len(PEERS))]
    spread = f"{microseconds(times.p10_ns)}-{microseconds(times.p90_ns)}"
    rate = f"{bytes_size(times.bytes_per_s)}/s"
    ratios = (gemm.speedups.get(name) for name in PEERS)
    faster = [UNKNOWN if ratio is None else f"{ratio.median:.2f}" for ratio in ratios]
    return [microseconds(times.median_ns), spread, rate, _share(times), *faster]


def _candidate(candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    block = "" if candidate.token_block is None else f"{candidate.token_block} x "
    return block + _tile(candidate.tile)


def _tile(tile: Tile) -> str:
    sizes = (tile.num_warps, tile.num_stages, tile.splits)
    limit = f", r{tile.max_registers}" if tile.max_registers < MAX_REGISTERS else ""
    return f"{tile.rows} x {tile.columns}, {', '.join(map(str, sizes))}{limit}"


def _mark(trial: Trial, tuned: TunedOperation) -> str:
    marks = (("chosen", tuned.chosen), ("before", tuned.before))
    return ", ".join(name for name, tile in marks if trial.tile == tile)


def _trial_time(trial: Trial) -> str:
    if trial.step_ns is not None:
        return microseconds(trial.step_ns)
    return shorten(f"not possible: {(trial.refusal or '').partition(chr(10))[0]}", _REFUSAL_CELLS)


def _step_range(spread: RoundSpread) -> str:
    us = (microseconds(value) for value in (spread.median, spread.min, spread.max))
    return "{} ({}-{})".format(*us)


def _time_cells(kernel: KernelFigures) -> list[str]:
    serial, overlapped = kernel.serial, kernel.overlapped
    if serial is None:
        return ["check failed", *[UNKNOWN] * 5]
    spread = f"{microseconds(serial.p10_ns)}-{microseconds(serial.p90_ns)}"
    rate = f"{bytes_size(serial.bytes_per_s)}/s"
    cells = [microseconds(serial.median_ns), spread, rate, _share(serial)]
    if overlapped is None:
        return [*cells, UNKNOWN, UNKNOWN]
    return [*cells, microseconds(overlapped.median_ns), _share(overlapped)]


def _share(times: LaunchTimes) -> str:
    return UNKNOWN if times.share_of_peak is None else f"{percent(times.share_of_peak)} %"


def _block_cells(block: BlockFigures) -> list[str]:
    cosines = [f"{1.0 - value:.1e}" for value in (block.fused_cosine, block.eager_cosine)]
    times = block.times
    if times is None:
        return ["check failed", *[UNKNOWN] * 6, *cosines]
    spreads = (
        times.eager_ungraphed_ns,
        times.eager_graphed_ns,
        times.fused_ungraphed_ns,
        times.fused_graphed_ns,
    )
    ratios = (
        times.eager_over_fused_ungraphed,
        times.eager_ungraphed_over_fused_graphed,
        times.eager_over_fused_graphed,
    )
    return [*(microseconds(spread.median) for spread in spreads), *map(_ratio, ratios), *cosines]


def _ratio(spread: RoundSpread) -> str:
    return f"{spread.median:.2f} ({spread.min:.2f}-{spread.max:.2f})"


def _table(names: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _page(
    title: str, table: Table, notes: list[str], errors: tuple[str, ...], environment: Environment
) -> RenderableType:
    machine = ", ".join(f"{key} {environment[key]}" for key in _MACHINE if environment.get(key))
    failed = [Text(error, style="bold red") for error in errors]
    return Group(
        Text(title, style="bold"),
        table,
        *failed,
        *(Text(note, style="dim") for note in notes),
        Text(machine, style="dim"),
    )
