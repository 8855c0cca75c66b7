"""The result of `python -m benchmarks kernels` for a terminal."""

from rich.console import RenderableType

from benchmarks.harness.tables import names_and_figures, result_page
from benchmarks.kernels.report import KernelBenchmark, KernelFigures, LaunchTimes
from decodescope.analyzer.text.formatting import UNKNOWN, bytes_size, microseconds, percent


def kernel_table(result: KernelBenchmark) -> RenderableType:
    """A row for each kernel: bytes, time and bandwidth of a launch, one by one and overlapped."""
    columns = ("bytes", "µs", "p10-p90", "rate", "of peak", "PDL µs", "of peak")
    table = names_and_figures(("operation", "kernel", "shape"), columns)
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
    return result_page(title, table, notes, result.environment, result.errors)


def _time_cells(kernel: KernelFigures) -> list[str]:
    serial, overlapped = kernel.serial, kernel.overlapped
    if serial is None:
        return ["check failed", *[UNKNOWN] * 5]
    spread = f"{microseconds(serial.p10_ns)}-{microseconds(serial.p90_ns)}"
    rate = f"{bytes_size(serial.bytes_per_s)}/s"
    cells = [microseconds(serial.median_ns), spread, rate, share_text(serial)]
    if overlapped is None:
        return [*cells, UNKNOWN, UNKNOWN]
    return [*cells, microseconds(overlapped.median_ns), share_text(overlapped)]


def share_text(times: LaunchTimes) -> str:
    """The share of the read peak as a percentage."""
    return UNKNOWN if times.share_of_peak is None else f"{percent(times.share_of_peak)} %"
