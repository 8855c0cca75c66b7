"""The cost of the app itself: seconds to its first paint, and CPU at rest, with a recording.

Each repeat opens a bundled recording in a pseudo-terminal and times the first paint: the first
screen that names the model. It then counts CPU seconds over some time while the replay runs, while
the view is frozen, and while the replay is paused. Writes benchmarks/results/app-costs.json. Linux
only (it reads /proc).
"""

import argparse
import statistics
from functools import partial
from pathlib import Path

from benchmarks.app.terminal import AppRun
from benchmarks.harness.common import RESULTS, repeated, write_record
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.cli.ending import end_with

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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    recording = bundled_recordings()[0]
    runs = repeated(arguments.repeats, partial(measure, recording, arguments.seconds))
    record = {
        "recording": recording.name,
        "seconds_each": arguments.seconds,
        "median": {key: statistics.median(run[key] for run in runs) for key in runs[0]},
        "runs": runs,
    }
    write_record(RESULTS / "app-costs.json", record)


if __name__ == "__main__":
    end_with(main)
