"""The result of `python -m benchmarks gemm` for a terminal."""

from rich.console import RenderableType

from benchmarks.gemm.gemm_report import PEERS, GemmBenchmark, GemmFigures
from benchmarks.gemm.gemm_tiles import Candidate
from benchmarks.harness.tables import names_and_figures, result_page
from benchmarks.kernels.result_table import share_text
from decodescope.analyzer.text.formatting import UNKNOWN, bytes_size, microseconds, shorten
from decodescope.variants.tuning.report import tile_text

_REFUSAL_CELLS = 60


def gemm_table(result: GemmBenchmark) -> RenderableType:
    """A row for each GEMM at each number of tokens: its times, and the peers' times ÷ its own."""
    figures = ("µs", "p10-p90", "rate", "of peak", *(f"x {name}" for name in PEERS))
    table = names_and_figures(("tokens", "GEMM", "tile"), figures)
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
    return result_page(title, table, notes, result.environment, result.errors)


def _gemm_cells(gemm: GemmFigures) -> list[str]:
    times = gemm.times
    if times is None:
        return [shorten(gemm.error or "", _REFUSAL_CELLS), *[UNKNOWN] * (3 + len(PEERS))]
    spread = f"{microseconds(times.p10_ns)}-{microseconds(times.p90_ns)}"
    rate = f"{bytes_size(times.bytes_per_s)}/s"
    ratios = (gemm.speedups.get(name) for name in PEERS)
    faster = [UNKNOWN if ratio is None else f"{ratio.median:.2f}" for ratio in ratios]
    return [microseconds(times.median_ns), spread, rate, share_text(times), *faster]


def _candidate(candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    block = "" if candidate.token_block is None else f"{candidate.token_block} x "
    return block + tile_text(candidate.tile)
