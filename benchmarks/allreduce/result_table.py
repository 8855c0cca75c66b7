"""The result of `python -m benchmarks allreduce` for a terminal."""

from rich.console import RenderableType

from benchmarks.allreduce.report import AllReduceBenchmark, AllReduceFigures
from benchmarks.harness.tables import names_and_figures, result_page
from decodescope.analyzer.text.formatting import UNKNOWN, bytes_size, microseconds, shorten

_REFUSAL_CELLS = 60


def all_reduce_table(result: AllReduceBenchmark) -> RenderableType:
    """A row for each way at each size of the message."""
    table = names_and_figures(("message", "all-reduce"), ("µs", "rounds", "own ÷ it", "error"))
    for size in result.sizes:
        for way in size.ways:
            message = bytes_size(size.message_bytes) if way is size.ways[0] else ""
            table.add_row(message, way.name, *_cells(way))
        table.add_section()
    where = "one GPU, in turns" if result.one_gpu else "a GPU each"
    title = f"{result.ranks} ranks, {where}: {result.rounds} rounds of {result.launches} launches"
    notes = [
        "times are per launch in a CUDA graph; messages are float32",
        "own: with the rounding of the sum; a step's message has 4 bytes for each hidden element",
    ]
    return result_page(title, table, notes, result.environment, result.errors)


def _cells(way: AllReduceFigures) -> list[str]:
    times, share = way.rounds_ns, way.own_share
    if times is None:
        return [shorten(way.error or "", _REFUSAL_CELLS), *[UNKNOWN] * 3]
    spread = f"{microseconds(times.min)}-{microseconds(times.max)}"
    ratio = UNKNOWN if share is None else f"{share.median:.2f}"
    return [microseconds(times.median), spread, ratio, f"{way.relative_error:.1e}"]
