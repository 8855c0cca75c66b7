"""How long a key is held on each page with a trace of 230,000 events, and how fast it opens.

The trace repeats the bundled recording of `eager`. The app runs headless on it. Every 2 ms, a task
of its event loop looks at the clock; the longest time between two looks after a key is how long
that key was held, with whatever else the app did meanwhile. Each repeat is a new process. Writes
benchmarks/results/key-holds.json.
"""

import asyncio
import gc
import gzip
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import rich_click as click

from benchmarks.analyzer.large_trace import make_trace
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.options import number_option
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.pages.all_pages import import_panels

EVENTS = 230_000
SIZE = (120, 40)
TICK_S, AFTER_KEY_S = 0.002, 0.12
_TABLE = (
    *("down", "down", "pagedown", "end", "home", "s", "s", "s", "r", "f", "m", "u", "l", "enter"),
    *("f", "backspace", "backspace", "backspace", "enter", "slash", "e", "enter", "n", "N"),
)
# On the kernels page, `enter` shows the launches of a kernel and `escape` goes back.
KEYS = {
    "1": ("enter", "enter"),
    "2": ("0", "plus", "plus", "left", "right", "minus", "g", "G", "comma", "full_stop", "c", "f"),
    "3": (*_TABLE, "home", "enter", *_TABLE, "escape"),
    "4": _TABLE,
    "5": _TABLE,
    "6": ("down", "up"),
    "7": ("enter", "enter"),
    "8": ("down", "up"),
    "9": ("down", "end", "home"),
}


class Watch:
    """The longest time between two looks at the clock since `reset`."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Look at the clock until cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            self.longest_s = max(self.longest_s, now - last - TICK_S)
            last = now

    def reset(self) -> None:
        """Forget the longest time."""
        self.longest_s = 0.0


async def holds(path: Path) -> dict[str, Any]:
    """Seconds until the trace is shown, and the ms that each key of each page was held."""
    began, watch = time.perf_counter(), Watch()
    app = DecodescopeApp(TraceSource((path,)), mount_ahead=True)
    pages: dict[str, list[tuple[str, float]]] = {}
    async with app.run_test(size=SIZE) as pilot:
        watching = asyncio.create_task(watch.run())
        while app.view().window is None:
            await asyncio.sleep(TICK_S)
        opened_s, opening_s = time.perf_counter() - began, watch.longest_s
        for page, keys in KEYS.items():
            pages[page] = []
            for key in (page, *keys):
                watch.reset()
                await pilot.press(key)
                await asyncio.sleep(AFTER_KEY_S)
                pages[page].append((key, watch.longest_s * 1e3))
            await pilot.press("escape", "escape", "escape")
        watching.cancel()
    return {"opened_s": opened_s, "longest_hold_while_opening_ms": opening_s * 1e3, "pages": pages}


def run(path: Path) -> dict[str, Any]:
    """`holds` in a process of its own, prepared as the command line prepares it."""
    import_panels()
    gc.freeze()
    return asyncio.run(holds(path))


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians and maxima of all runs; of each page the key that was held longest."""
    pages = {}
    for page in KEYS:
        every = [hold for run in runs for hold in run["pages"][page]]
        key, longest_ms = max(every, key=lambda hold: hold[1])
        pages[page] = {
            "keys": len(every),
            "median_ms": statistics.median(ms for _, ms in every),
            "longest_ms": longest_ms,
            "longest_key": key,
        }
    return {
        "opened_s": [run["opened_s"] for run in runs],
        "longest_hold_while_opening_ms": [run["longest_hold_while_opening_ms"] for run in runs],
        "pages": pages,
        "runs": [run["pages"] for run in runs],
    }


@click.command("key-holds")
@number_option("--repeats", default=5, show_default=True)
def command(repeats: int) -> None:
    """How long each key of each page is held with a trace of 230,000 events, headless."""
    recording = next(one for one in bundled_recordings() if one.stem.endswith("-eager"))
    source = read_recording(recording).last_packed_traces()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        make_trace(gzip.decompress(source), EVENTS, path)
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
            runs = [processes.submit(run, path).result() for _ in range(repeats)]
    write_record(RESULTS / "key-holds.json", {"events": EVENTS, **summary(runs)})
