"""The memory of the app over hours of a run: eight hours are played through it without waiting.

The messages of a bundled recording are repeated, four statistics a second, a log line a second and
a window every 40 s, into a recording of eight hours, which the app plays from its start as fast as
possible in a pseudo-terminal. The resident memory is read once for each hour that was played, and
the first hour is the one to compare with. Writes benchmarks/results/app-memory.json. Linux only (it
reads /proc).
"""

import gzip
import re
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
import rich_click as click

from benchmarks.app.terminal import READ_BYTES, AppRun
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.protocol.messages import Log, Stats, TraceReady
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.cli.options import number_option

NS = 1_000_000_000
WINDOW_EVERY_S = 40
LIMIT_S = 1800.0
FASTEST = "]" * 8
_ESCAPE = re.compile(rb"\x1b\[[\d;?]*[A-Za-z]")
_PLACE = re.compile(rb"(?:playing|ended) (?:(\d+):)?(\d+):\d\d\.\d ")


def write_hours(source: Path, hours: int, path: Path) -> int:
    """A recording of so many hours, from what `source` holds; returns its number of windows."""
    recording = read_recording(source)
    traces = []
    for number, window in enumerate(recording.windows):
        trace = path.with_name(f"trace-{number}.json")
        trace.write_bytes(gzip.decompress(recording.packed_traces(window)[0]))
        assert isinstance(window.message, TraceReady)
        traces.append(msgspec.structs.replace(window.message, path=str(trace)))
    stats = [f.message for f in recording.frames() if isinstance(f.message, Stats)]
    now, windows = [0], 0
    with closing(RecordingWriter(path, 1 << 30, lambda: now[0])) as writer:
        for event in recording.events:
            if not isinstance(event.message, TraceReady):
                writer.write(event.message)
        for quarter in range(hours * 3600 * 4):
            now[0] += NS // 4
            writer.write(msgspec.structs.replace(stats[quarter % len(stats)], seq=quarter))
            if quarter % 4 == 0:
                writer.write(Log("info", f"second {quarter // 4}"))
            if quarter % (4 * WINDOW_EVERY_S) == 0:
                writer.write(traces[windows % len(traces)])
                windows += 1
    return windows


def played(app: AppRun) -> float:
    """The hours that the line of the replay shows; 0 before it is drawn."""
    places = _PLACE.findall(_ESCAPE.sub(b"", app.output[-READ_BYTES:]))
    return int(places[-1][0] or 0) + int(places[-1][1]) / 60 if places else 0.0


@click.command("app-memory")
@number_option("--hours", default=8, show_default=True)
def command(hours: int) -> None:
    """The app's memory over hours of a run, played without waiting."""
    source = next(path for path in bundled_recordings() if path.stem.endswith("fused+graph"))
    with tempfile.TemporaryDirectory(prefix="decodescope-bench-") as folder:
        path = Path(folder) / "hours.dsrec"
        windows = write_hours(source, hours, path)
        app = AppRun("open", str(path))
        app.read_until(lambda: b"launch" in app.output, LIMIT_S)
        opened_s = app.read_until(lambda: b"paused" in app.output, LIMIT_S)
        app.press("R" + FASTEST)
        memory = []
        for hour in range(1, hours + 1):
            reached = hour - 0.1
            app.read_until(lambda reached=reached: played(app) >= reached, LIMIT_S)  # type: ignore[misc]
            memory.append(app.memory_bytes())
            sys.stderr.write(f"hour {hour}: {memory[-1]:,} bytes\n")
        app.quit()
        file_bytes = path.stat().st_size
    record = {
        "recording": source.name,
        "hours": hours,
        "statistics": hours * 3600 * 4,
        "windows": windows,
        "file_bytes": file_bytes,
        "opened_s": opened_s,
        "memory_bytes_by_hour": memory,
        "growth": memory[-1] / memory[0] - 1,
    }
    write_record(RESULTS / "app-memory.json", record)
