"""The cost of the app itself: seconds to its first paint, and CPU at rest, with a recording.

Each repeat opens a bundled recording in a pseudo-terminal and times the first paint: the first
screen that names the model. It then counts CPU seconds over some time while the replay runs, while
the view is frozen, and while the replay is paused. Writes benchmarks/results/app-costs.json. Linux
only (it reads /proc).
"""

import statistics
from functools import partial
from pathlib import Path

import rich_click as click

from benchmarks.app.terminal import AppRun
from benchmarks.harness.processes import repeated
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.cli.options import number_option

SETTLE_S = 3.0


def core_share(app: AppRun, seconds: float) -> float:
    """CPU seconds per second, over `seconds`, after the app has settled."""
    app.read_for(SETTLE_S)
    before = app.cpu_s()
    app.read_for(seconds)
    return (app.cpu_s() - before) / seconds


def measure(recording: Path, seconds: float) -> dict[str, float]:
    """One start of the app."""
    app = AppRun("open", str(recording))
    first_paint_s = app.read_until(lambda: b"llama" in app.output, limit_s=20)
    # It opens paused.
    app.press("R")
    app.read_for(SETTLE_S)
    running = core_share(app, seconds)
    app.press(" ")
    frozen = core_share(app, seconds)
    app.press(" ")
    app.press("p")
    paused = core_share(app, seconds)
    app.quit()
    return {
        "first_paint_s": first_paint_s,
        "running_core_share": running,
        "frozen_core_share": frozen,
        "paused_core_share": paused,
    }


@click.command("app-costs")
@number_option("--repeats", default=5, show_default=True)
@click.option("--seconds", type=float, default=10, show_default=True, help="Of each state.")
def command(repeats: int, seconds: float) -> None:
    """The app's first paint, and its CPU time frozen, paused and replaying."""
    recording = bundled_recordings()[0]
    runs = repeated(repeats, partial(measure, recording, seconds))
    record = {
        "recording": recording.name,
        "seconds_each": seconds,
        "median": {key: statistics.median(run[key] for run in runs) for key in runs[0]},
        "runs": runs,
    }
    write_record(RESULTS / "app-costs.json", record)
