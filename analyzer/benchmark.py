"""`bench analyzer`: time and memory to read and analyse a 230,000-event trace.

The trace is made from recorded events; each repetition runs in a process of its own.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.benchmark_trace import make_trace
from decodescope.analyzer.byte_source import GZIP_MAGIC, ByteSource, open_stream
from decodescope.analyzer.errors import DecodescopeError, TraceError
from decodescope.analyzer.provenance import Environment, host_facts, package_version

EVENTS = 230_000
TARGET_READ_NS = 1_200_000_000
TARGET_PEAK_RSS_BYTES = 250 * 1000 * 1000
_CHILD = "decodescope.analyzer.benchmark_child"
_CHILD_TIMEOUT_S = 300


class Spread(Struct, frozen=True):
    """Over the repetitions."""

    min: int
    median: int
    max: int


class AnalyzerBenchmark(Struct, frozen=True):
    """`bench analyzer --json`. Times in ns, `total_ns` = import + read + analyze + encode."""

    schema_version: int
    events: int
    file_bytes: int
    repeats: int
    import_ns: Spread
    read_ns: Spread
    analyze_ns: Spread
    encode_ns: Spread
    total_ns: Spread
    peak_rss_bytes: Spread
    report_bytes: int
    target_read_ns: int
    target_peak_rss_bytes: int
    environment: dict[str, str | int | float | None]


class _Figures(Struct, frozen=True):
    import_ns: int
    read_ns: int
    analyze_ns: int
    encode_ns: int
    peak_rss_bytes: int
    events: int
    report_bytes: int


def run_analyzer_benchmark(source: Path, repeats: int, events: int = EVENTS) -> AnalyzerBenchmark:
    """Make the trace from `source` (a Kineto trace or a recording) and measure `repeats` passes.

    Raises:
        TraceError: `source` is no trace, or a recording without a captured window.
        DecodescopeError: the measured process failed.
    """
    with tempfile.TemporaryDirectory(prefix="decodescope-bench-") as folder:
        path = Path(folder) / "trace.json"
        file_bytes = make_trace(_source_json(source), events, path)
        runs = [_measure(path) for _ in range(repeats)]
    return AnalyzerBenchmark(
        schema_version=1,
        events=runs[0].events,
        file_bytes=file_bytes,
        repeats=repeats,
        import_ns=_spread([run.import_ns for run in runs]),
        read_ns=_spread([run.read_ns for run in runs]),
        analyze_ns=_spread([run.analyze_ns for run in runs]),
        encode_ns=_spread([run.encode_ns for run in runs]),
        total_ns=_spread(
            [run.import_ns + run.read_ns + run.analyze_ns + run.encode_ns for run in runs]
        ),
        peak_rss_bytes=_spread([run.peak_rss_bytes for run in runs]),
        report_bytes=runs[0].report_bytes,
        target_read_ns=TARGET_READ_NS,
        target_peak_rss_bytes=TARGET_PEAK_RSS_BYTES,
        environment=_environment(source),
    )


def benchmark_table(result: AnalyzerBenchmark) -> RenderableType:
    """The result for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style="bold")
    for column in ("min", "median", "max", "target"):
        table.add_column(column, justify="right")
    stages = {
        "import": (result.import_ns, None),
        "read": (result.read_ns, result.target_read_ns),
        "analyse": (result.analyze_ns, None),
        "encode JSON": (result.encode_ns, None),
        "all": (result.total_ns, None),
    }
    for name, (spread, target) in stages.items():
        values = (spread.min, spread.median, spread.max)
        goal = f"{target / 1e9:.3f} s" if target else ""
        table.add_row(name, *(f"{value / 1e9:.3f} s" for value in values), goal)
    rss = result.peak_rss_bytes
    table.add_row(
        "peak memory",
        *(f"{value / 1e6:.0f} MB" for value in (rss.min, rss.median, rss.max)),
        f"{result.target_peak_rss_bytes / 1e6:.0f} MB",
    )
    title = Text(
        f"{result.events:,} events, {result.file_bytes / 1e6:.1f} MB of JSON, "
        f"{result.repeats} processes",
        style="bold",
    )
    machine = ", ".join(f"{key} {value}" for key, value in result.environment.items() if value)
    return Group(title, table, Text(machine, style="dim"))


def _source_json(source: Path) -> bytes:
    with open_stream(str(source)) as stream:
        head = stream.read(5)
    if head == b"DSREC":
        from decodescope.analyzer.recording import read_recording

        recording = read_recording(source)
        if not recording.windows:
            raise TraceError(f"{source}: no captured window to make a trace from; record one")
        return recording.trace_bytes(recording.windows[-1])
    if not head.startswith((GZIP_MAGIC, b"{")):
        raise TraceError(f"{source}: no Kineto trace; give one to make the benchmark's from")
    with open_stream(str(source)) as stream:
        pieces = ByteSource(stream, str(source))
        return b"".join(iter(pieces.read, b""))


def _measure(path: Path) -> _Figures:
    done = subprocess.run(
        [sys.executable, "-m", _CHILD, str(path)],
        capture_output=True,
        timeout=_CHILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise DecodescopeError(f"bench analyzer: the measured process failed: {' '.join(reason)}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=_Figures)


def _spread(values: Sequence[int]) -> Spread:
    return Spread(min=min(values), median=int(np.median(values)), max=max(values))


def _environment(source: Path) -> Environment:
    versions = {name: package_version(name) for name in ("numpy", "msgspec")}
    return {**host_facts(), **versions, "source": source.name}
