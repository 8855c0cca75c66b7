"""What a user feels: how soon the app answers a key, opens a large trace, and what it costs.

A trace of 230,000 events is opened in a terminal of 120 by 40 cells. While it opens, a key is
pressed every 0.1 s; a key is answered by the first output after it, and the longest time without an
answer counts. Then keys are pressed on every page, one at a time: `first` is the time until the
first output, `painted` until the last of its paint (no more output for 50 ms). At rest nothing
should be drawn, so a key's output is its own. CPU and memory are those of the app's process, which
/proc shows (Linux). Writes benchmarks/results/app-responsiveness.json.
"""

import gzip
import re
import statistics
import tempfile
import time
from pathlib import Path

import rich_click as click

from benchmarks.analyzer.large_trace import make_trace
from benchmarks.app.terminal import AppRun
from benchmarks.harness.processes import repeated
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.options import number_option
from decodescope.tui.pages.all_pages import PAGES

EVENTS = 230_000
QUIET_S = 0.05
KEY_EVERY_S = 0.1
LIMIT_S = 60.0
# A key that changes nothing is not answered.
ANSWER_S = 1.0
_READY = re.compile(rb"\d launches|\d GPU ops|idle [\d<]")
# Keys that change what a page shows, and back; four pages have keys of their own.
KEYS = {"timeline": "+dda-", "step": "\r\r", "ab": "\r\r", "log": "lll"}
OTHER_KEYS = "jjkk"


def answered(app: AppRun, key: str) -> tuple[float, float]:
    """Seconds from pressing `key` to the first output and to the last of its paint.

    Raises:
        TimeoutError: there was no output at all.
    """
    before = len(app.output)
    pressed = time.monotonic()
    app.press(key)
    app.read_until(lambda: len(app.output) > before, limit_s=pressed - app.started + ANSWER_S)
    first = last = time.monotonic()
    size = len(app.output)
    while time.monotonic() - last < QUIET_S:
        app.read_for(0.005)
        if len(app.output) > size:
            size, last = len(app.output), time.monotonic()
    return first - pressed, last - pressed


def opened(path: Path) -> tuple[AppRun, dict[str, float]]:
    """The app on the trace, and how it opened."""
    app = AppRun("open", str(path))
    first_s = app.read_until(lambda: b"decodescope" in app.output, LIMIT_S)
    longest, key = 0.0, 0
    while not _READY.search(app.output) and time.monotonic() - app.started < LIMIT_S:
        # Two pages in turn: each press changes the screen.
        longest = max(longest, answered(app, "91"[key % 2])[0])
        key += 1
        app.read_for(KEY_EVERY_S)
    usable_s = time.monotonic() - app.started
    app.read_for(1.0)
    return app, {"first_paint_s": first_s, "usable_s": usable_s, "longest_key_s": longest}


def measure(path: Path, presses: int, seconds: float) -> dict[str, float]:
    """One run of the app."""
    app, figures = opened(path)
    for page in PAGES:
        app.press(page.key)
        app.read_for(1.0)
        keys = KEYS.get(page.name, OTHER_KEYS)
        times = [answered(app, keys[number % len(keys)]) for number in range(presses)]
        for name, values in zip(("first", "painted"), zip(*times, strict=True), strict=True):
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            figures[f"{page.name}_{name}_p50_s"] = statistics.median(values)
            figures[f"{page.name}_{name}_p99_s"] = cuts[98]
    switches = [answered(app, page.key)[1] for _ in range(3) for page in PAGES]
    figures["page_switch_max_s"] = max(switches)
    before = app.cpu_s()
    app.read_for(seconds)
    figures["rest_core_share"] = (app.cpu_s() - before) / seconds
    figures["memory_bytes"] = app.memory_bytes()
    app.quit()
    return figures


@click.command("app-responsiveness")
@number_option("--repeats", default=3, show_default=True)
@number_option("--presses", default=60, show_default=True, help="Keys on each page.")
@click.option("--seconds", type=float, default=10, show_default=True, help="At rest.")
def command(repeats: int, presses: int, seconds: float) -> None:
    """A trace of 230,000 events in a terminal: first paint, answers to keys, CPU, memory."""
    with tempfile.TemporaryDirectory(prefix="decodescope-bench-") as folder:
        path = Path(folder) / "trace.json"
        packed = read_recording(bundled_recordings()[0]).last_packed_traces()[0]
        file_bytes = make_trace(gzip.decompress(packed), EVENTS, path)
        runs = repeated(repeats, lambda: measure(path, presses, seconds))
    record = {
        "events": EVENTS,
        "file_bytes": file_bytes,
        "size": "120x40",
        "presses_each": presses,
        "median": {
            key: statistics.median(run[key] for run in runs)
            for key in runs[0]
            if all(key in run for run in runs)
        },
        "runs": runs,
    }
    write_record(RESULTS / "app-responsiveness.json", record)
