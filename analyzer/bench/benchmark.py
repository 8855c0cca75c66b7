"""`bench analyzer`: time and memory to read and analyse a large trace, beside a peer's.

The trace is made from recorded events. Each repetition runs every measured program once, each in a
process of its own, so that ratios come from the same minute of the same machine.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from decodescope.analyzer.bench.large_trace import make_trace
from decodescope.analyzer.errors import DecodescopeError, InputError, TraceError
from decodescope.analyzer.provenance import host_facts, package_version
from decodescope.analyzer.readers.byte_source import GZIP_MAGIC, ByteSource, open_stream
from decodescope.analyzer.schema.report import Environment

EVENTS = 230_000
# (time, memory) of `analyze --json` for traces of this many events.
TARGETS = {230_000: (1_000_000_000, 200_000_000), 1_000_000: (5_000_000_000, 800_000_000)}
PEER_TIME_TARGET, PEER_MEMORY_TARGET = 3.0, 2.0
_CHILD = "decodescope.analyzer.bench.child"
_PEER = Path(__file__).with_name("peer.py")
_TIMEOUT_S = 300


class Spread(Struct, frozen=True):
    """Over the repetitions."""

    min: int
    median: int
    max: int


class Ratio(Struct, frozen=True):
    """The peer's figure ÷ ours, over the repetitions, each taken within one."""

    min: float
    median: float
    max: float


class PeerBenchmark(Struct, frozen=True):
    """The same file in another tool. `work_ns` = read + analyse, without its imports; `time_ratio`
    compares that with ours (read + analyze + encode), `memory_ratio` the peaks of the processes."""

    name: str
    version: str
    import_ns: Spread
    read_ns: Spread
    analyze_ns: Spread
    work_ns: Spread
    peak_rss_bytes: Spread
    time_ratio: Ratio
    memory_ratio: Ratio


class AnalyzerBenchmark(Struct, frozen=True):
    """`bench analyzer --json`. Times in ns. `command_ns` is the whole process `analyze FILE --json`
    from start to end, and `peak_rss_bytes` its memory; the stages come from another process."""

    schema_version: int
    events: int
    file_bytes: int
    repeats: int
    import_ns: Spread
    read_ns: Spread
    analyze_ns: Spread
    encode_ns: Spread
    command_ns: Spread
    peak_rss_bytes: Spread
    report_bytes: int
    target_command_ns: int | None
    target_peak_rss_bytes: int | None
    peer: PeerBenchmark | None
    environment: Environment


class _Stages(Struct, frozen=True):
    import_ns: int
    read_ns: int
    analyze_ns: int
    encode_ns: int
    peak_rss_bytes: int
    events: int
    report_bytes: int

    @property
    def work_ns(self) -> int:
        return self.read_ns + self.analyze_ns + self.encode_ns


class _Command(Struct, frozen=True):
    peak_rss_bytes: int


class _Peer(Struct, frozen=True):
    name: str
    version: str
    import_ns: int
    read_ns: int
    analyze_ns: int
    peak_rss_bytes: int

    @property
    def work_ns(self) -> int:
        return self.read_ns + self.analyze_ns


_Figures = TypeVar("_Figures", _Stages, _Command, _Peer)


def run_analyzer_benchmark(
    source: Path, repeats: int, events: int = EVENTS, peer_python: Path | None = None
) -> AnalyzerBenchmark:
    """Make the trace from `source` (a Kineto trace or a recording) and measure `repeats` passes.

    `peer_python` is a Python that has HolisticTraceAnalysis; without one, no peer is measured.

    Raises:
        InputError: `peer_python` is no program or lacks the package.
        TraceError: `source` is no trace, or a recording without a captured window.
        DecodescopeError: a measured process failed.
    """
    stages, commands, command_ns, peers = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="decodescope-bench-") as folder:
        path = Path(folder) / "trace.json"
        file_bytes = make_trace(_source_json(source), events, path)
        for _ in range(repeats):
            stages.append(_measure(_child("stages", path), _Stages))
            began = time.perf_counter_ns()
            commands.append(_measure(_child("command", path), _Command))
            command_ns.append(time.perf_counter_ns() - began)
            if peer_python is not None:
                peers.append(_measure_peer(peer_python, path))
    target_ns, target_bytes = TARGETS.get(events, (None, None))
    peaks = [run.peak_rss_bytes for run in commands]
    return AnalyzerBenchmark(
        schema_version=1,
        events=stages[0].events,
        file_bytes=file_bytes,
        repeats=repeats,
        import_ns=_spread([run.import_ns for run in stages]),
        read_ns=_spread([run.read_ns for run in stages]),
        analyze_ns=_spread([run.analyze_ns for run in stages]),
        encode_ns=_spread([run.encode_ns for run in stages]),
        command_ns=_spread(command_ns),
        peak_rss_bytes=_spread(peaks),
        report_bytes=stages[0].report_bytes,
        target_command_ns=target_ns,
        target_peak_rss_bytes=target_bytes,
        peer=_peer_benchmark(peers, stages, peaks) if peers else None,
        environment=_environment(source),
    )


def _peer_benchmark(
    peers: Sequence[_Peer], ours: Sequence[_Stages], our_peaks: Sequence[int]
) -> PeerBenchmark:
    times = [peer.work_ns / own.work_ns for peer, own in zip(peers, ours, strict=True)]
    memory = [peer.peak_rss_bytes / peak for peer, peak in zip(peers, our_peaks, strict=True)]
    return PeerBenchmark(
        name=peers[0].name,
        version=peers[0].version,
        import_ns=_spread([peer.import_ns for peer in peers]),
        read_ns=_spread([peer.read_ns for peer in peers]),
        analyze_ns=_spread([peer.analyze_ns for peer in peers]),
        work_ns=_spread([peer.work_ns for peer in peers]),
        peak_rss_bytes=_spread([peer.peak_rss_bytes for peer in peers]),
        time_ratio=Ratio(min(times), float(np.median(times)), max(times)),
        memory_ratio=Ratio(min(memory), float(np.median(memory)), max(memory)),
    )


def _source_json(source: Path) -> bytes:
    with open_stream(str(source)) as stream:
        head = stream.read(5)
    if head == b"DSREC":
        from decodescope.analyzer.recordings.recording import read_recording

        recording = read_recording(source)
        if not recording.windows:
            raise TraceError(f"{source}: no captured window to make a trace from; record one")
        return recording.trace_bytes(recording.windows[-1])
    if not head.startswith((GZIP_MAGIC, b"{")):
        raise TraceError(f"{source}: no Kineto trace; give one to make the benchmark's from")
    with open_stream(str(source)) as stream:
        pieces = ByteSource(stream, str(source))
        return b"".join(iter(pieces.read, b""))


def _child(what: str, path: Path) -> list[str]:
    return [sys.executable, "-m", _CHILD, what, str(path)]


def _measure(command: list[str], figures: type[_Figures]) -> _Figures:
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise DecodescopeError(f"bench analyzer: the measured process failed: {' '.join(reason)}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=figures)


def _measure_peer(python: Path, path: Path) -> _Peer:
    try:
        return _measure([str(python), str(_PEER), str(path)], _Peer)
    except OSError as error:
        raise InputError(f"--peer {python}: cannot be run ({error}); name a Python") from error
    except DecodescopeError as error:
        if "No module named 'hta'" not in str(error):
            raise
        raise InputError(
            f"--peer {python}: has no HolisticTraceAnalysis; install it there with: "
            "pip install HolisticTraceAnalysis 'pandas<3'"
        ) from error


def _spread(values: Sequence[int]) -> Spread:
    return Spread(min=min(values), median=int(np.median(values)), max=max(values))


def _environment(source: Path) -> Environment:
    versions = {name: package_version(name) for name in ("numpy", "msgspec")}
    return {**host_facts(), **versions, "source": source.name}
