"""A full repaint of the timeline with 100,000 kernels in view, at 120x40 and 250x60 cells.

A made-up trace of 200,000 kernels and their launches is read and analysed once. The app runs
headless on it; at zoom 2, each pan computes every track again. A repaint is timed from the key's
action until every line of the panel is text for the terminal, with the garbage collections that
happen meanwhile. Writes benchmarks/results/timeline-repaint.json.
"""

import asyncio
import gc
import random
import statistics
import tempfile
import time
from pathlib import Path

import rich_click as click

from benchmarks.harness.records import RESULTS, write_record
from decodescope.cli.options import number_option
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.background import analyse_files
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.timeline.timeline_panel import TimelinePanel

SIZES = ((120, 40), (250, 60))
KERNELS = 200_000
_NAMES = (
    *("nvjet_tst_64x8_64x16_2x1_v_bz_TNT", "flash_fwd_splitkv_kernel", "vectorized_elementwise"),
    *("reduce_kernel", "CatArrayBatchedCopy", "ncclDevKernel_AllReduce_Sum_bf16"),
)
_GAPS_NS = (0, 300, 900, 2_500, 60_000)
_CUT_SHARES = (10, 40, 30, 19, 1)


def write_trace(path: Path, kernels: int, streams: int) -> None:
    """Kernels of 0.8 to 20 µs on `streams` streams, launched 3 µs before they start."""
    draw, at_ns = random.Random(1), 10_000
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        for number in range(1, kernels + 1):
            at_ns += draw.choices(_GAPS_NS, _CUT_SHARES)[0]
            took_ns = draw.randrange(800, 20_000)
            stream, name = draw.randrange(streams), draw.choice(_NAMES)
            ids = f'"correlation": {number}'
            file.write(
                f'{"," if number > 1 else ""}\n{{"ph": "X", "cat": "cuda_runtime", "name": '
                f'"cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {(at_ns - 3_000) / 1e3:.3f}, '
                f'"dur": 0.7, "args": {{{ids}}}}},\n{{"ph": "X", "cat": "kernel", '
                f'"name": "{name}", "pid": 0, "tid": {stream}, "ts": {at_ns / 1e3:.3f}, '
                f'"dur": {took_ns / 1e3:.3f}, '
                f'"args": {{{ids}, "device": 0, "stream": {stream}}}}}'
            )
            at_ns += took_ns
        file.write("\n]}\n")


async def repaints_ms(path: Path, size: tuple[int, int], repeats: int) -> list[tuple[float, float]]:
    """How long each of `repeats` repaints took, and the CPU time of its thread, in ms."""
    app = DecodescopeApp(TraceSource((path,)))
    found: list[tuple[float, float]] = []
    async with app.run_test(size=size) as pilot:
        panel = app.query_one(TimelinePanel)
        while app.workers._workers or not panel.size.height:
            await pilot.press("2")
            await pilot.pause(0.1)
        await pilot.press("0", "plus")
        for number in range(repeats):
            began, cpu_began = time.perf_counter(), time.thread_time()
            panel.action_pan(1 if number % 2 else -1)
            for y in range(panel.size.height):
                panel.render_line(y).render(app.console)
            took, cpu = time.perf_counter() - began, time.thread_time() - cpu_began
            found.append((took * 1e3, cpu * 1e3))
            await pilot.pause()
    return found


@click.command("timeline-repaint")
@number_option("--repeats", default=40, show_default=True)
@number_option("--streams", default=4, show_default=True)
def command(repeats: int, streams: int) -> None:
    """A full repaint of the timeline with 100,000 kernels in view, headless."""
    # As the command line does.
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        write_trace(path, KERNELS, streams)
        began = time.perf_counter()
        analyse_files([path], 0.0)
        opened_s = time.perf_counter() - began
        sizes = {}
        for size in SIZES:
            times, cpu = zip(*asyncio.run(repaints_ms(path, size, repeats)), strict=True)
            sizes[f"{size[0]}x{size[1]}"] = {
                "median_ms": statistics.median(times),
                "max_ms": max(times),
                "cpu_median_ms": statistics.median(cpu),
                "cpu_max_ms": max(cpu),
                "repaints": len(times),
            }
    record = {
        "kernels": KERNELS,
        "kernels_in_view": KERNELS // 2,
        "streams": streams,
        "read_and_analysed_s": opened_s,
        "sizes": sizes,
    }
    write_record(RESULTS / "timeline-repaint.json", record)
