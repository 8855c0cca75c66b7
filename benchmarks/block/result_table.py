"""The result of `python -m benchmarks block` for a terminal."""

from rich.console import RenderableType

from benchmarks.block.report import BlockBenchmark, BlockFigures
from benchmarks.harness.tables import names_and_figures, result_page
from decodescope.analyzer.text.formatting import UNKNOWN, microseconds
from decodescope.variants.tuning.report import spread_text


def block_table(result: BlockBenchmark) -> RenderableType:
    """A row for each dtype and cache length: the four times, the ratios, and the cosines."""
    columns = ("eager µs", "graphed", "fused µs", "graphed")
    ratios = ("eager/fused", "eager/graphed", "both graphed", "1 - cosine", "eager's")
    table = names_and_figures(("dtype", "cache"), (*columns, *ratios))
    for block in result.blocks:
        table.add_row(block.dtype, f"{block.cache_length}", *_block_cells(block))
    title = (
        f"one attention block of {result.model}, batch {result.batch}, "
        f"{result.rounds} rounds of {result.calls} blocks"
    )
    notes = ["medians over the rounds, ratios with their range; cosines to float32"]
    return result_page(title, table, notes, result.environment, result.errors)


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
    return [
        *(microseconds(spread.median) for spread in spreads),
        *map(spread_text, ratios),
        *cosines,
    ]
