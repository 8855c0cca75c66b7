"""`analyzer`: time and memory to read and analyse a large trace, compared with a peer's.

The trace repeats recorded events. Each repetition runs every measured program once, each in its own
process, so that ratios come from the same minute on the same machine.
"""

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from benchmarks.analyzer.large_trace import make_trace
from benchmarks.analyzer.rank_traces import make_rank_traces
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.machine.provenance import package_version
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.schema.report import Environment
from decodescope.variants.machine.environment import environment

EVENTS, RANK_EVENTS = 230_000, 200_000
# (time, memory) of `analyze --json` for traces of this many events.
TARGETS = {230_000: (1_000_000_000, 200_000_000), 1_000_000: (5_000_000_000, 800_000_000)}
# Of the ranks of one run: (ranks, events each) and the same figures for the whole command.
RANKS_TARGETS = {(16, 200_000): (12_000_000_000, 1_000_000_000)}
PEER_TIME_TARGET, PEER_MEMORY_TARGET = 3.0, 2.0
_CHILD = (sys.executable, "-m", "benchmarks.analyzer.child")
_CHILD_FILE = Path(__file__).with_name("child.py")
_TIMEOUT_S = 300
# The JSON object of a measured process.
_Figures = dict[str, Any]


class Spread(Struct, frozen=True):
    """A figure over the repetitions."""

    min: int | float
    median: int | float
    max: int | float


class PeerBenchmark(Struct, frozen=True):
    """The same file in another tool. `work_ns` = read + analyse, without its imports.

    Ratios are the peer's figure ÷ ours within one repetition: `time_ratio` compares that work with
    ours (read + analyze + encode), `memory_ratio` the peaks of the processes.
    """

    name: str
    version: str
    import_ns: Spread
    read_ns: Spread
    analyze_ns: Spread
    work_ns: Spread
    peak_rss_bytes: Spread
    time_ratio: Spread
    memory_ratio: Spread


class RanksBenchmark(Struct, frozen=True):
    """`analyze RANK0 … --json` on the files of `ranks` ranks of `events` events each. `command_ns`
    is the whole command, `cpu_ns` the CPU time of all its processes, `tree_peak_rss_bytes` the most
    memory that they were seen to have together."""

    ranks: int
    events: int
    file_bytes: int
    command_ns: Spread
    cpu_ns: Spread
    tree_peak_rss_bytes: Spread
    target_command_ns: int | None
    target_peak_rss_bytes: int | None


class CacheBenchmark(Struct, frozen=True):
    """The same file with a cache. `first_command_ns` is the command that reads the file and keeps
    its columns (`kept_bytes`); the others are of later processes, which read the columns."""

    first_command_ns: Spread
    command_ns: Spread
    read_ns: Spread
    peak_rss_bytes: Spread
    kept_bytes: int


class AnalyzerBenchmark(Struct, frozen=True):
    """`analyzer --json`. Times in ns. `command_ns` is the whole process `analyze FILE --json`
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
    ranks: RanksBenchmark | None = None
    cache: CacheBenchmark | None = None


def run_analyzer_benchmark(
    source: Path,
    repeats: int,
    events: int = EVENTS,
    peer_python: Path | None = None,
    ranks: int | None = None,
    cache: bool = False,
) -> AnalyzerBenchmark:
    """Make the trace from the last window of the recording `source`; measure `repeats` passes.

    `peer_python` is a Python that has HolisticTraceAnalysis; without one, no peer is measured. With
    `ranks`, so many files of a rank each, of `RANK_EVENTS` events or `events` if these are fewer,
    are measured too; with `cache`, also commands that keep the columns, and then read those.

    Raises:
        InputError: `peer_python` is not a program or lacks the package.
        TraceError: `source` is not a recording, or has no captured window.
        DecodescopeError: a measured process failed.
    """
    ours: list[_Figures] = []
    commands: list[_Figures] = []
    peers: list[_Figures] = []
    of_ranks: RanksBenchmark | None = None
    of_cache: CacheBenchmark | None = None
    with WorkFolder() as folder:
        path = Path(folder) / "trace.json"
        packed = read_recording(source).last_packed_traces()[0]
        file_bytes = make_trace(gzip.decompress(packed), events, path)
        for _ in range(repeats):
            # First, as it may fail: nothing is measured in vain.
            if peer_python is not None:
                peers.append(_measure_peer(peer_python, path))
            ours.append(_measure([*_CHILD, "stages", str(path)]))
            commands.append(_measure([*_CHILD, "command", str(path)]))
        if cache:
            of_cache = _measure_cache(path, repeats)
        if ranks is not None:
            path.unlink()
            of_ranks = _measure_ranks(packed, ranks, min(events, RANK_EVENTS), repeats, path.parent)
    target_ns, target_bytes = TARGETS.get(events, (None, None))
    versions = {name: package_version(name) for name in ("numpy", "msgspec")}
    return AnalyzerBenchmark(
        schema_version=1,
        events=ours[0]["events"],
        file_bytes=file_bytes,
        repeats=repeats,
        **_spreads(ours, "import_ns", "read_ns", "analyze_ns", "encode_ns"),
        **_spreads(commands, "command_ns", "peak_rss_bytes"),
        report_bytes=ours[0]["report_bytes"],
        target_command_ns=target_ns,
        target_peak_rss_bytes=target_bytes,
        peer=_peer_benchmark(peers, ours, commands) if peers else None,
        environment={**environment(), **versions, "source": source.name},
        ranks=of_ranks,
        cache=of_cache,
    )


def _measure_cache(path: Path, repeats: int) -> CacheBenchmark:
    """As `CacheBenchmark`; the file must have been written more than two seconds ago."""
    firsts, commands, stages = list[_Figures](), list[_Figures](), list[_Figures]()
    for _ in range(repeats):
        with WorkFolder() as folder:
            firsts.append(_measure([*_CHILD, "command", str(path)], folder))
            commands.append(_measure([*_CHILD, "command", str(path)], folder))
            stages.append(_measure([*_CHILD, "stages", str(path)], folder))
            kept_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*.columns"))
    return CacheBenchmark(
        first_command_ns=_spread([run["command_ns"] for run in firsts]),
        **_spreads(commands, "command_ns", "peak_rss_bytes"),
        **_spreads(stages, "read_ns"),
        kept_bytes=kept_bytes,
    )


def _measure_ranks(
    packed: bytes, ranks: int, events: int, repeats: int, folder: Path
) -> RanksBenchmark:
    paths = make_rank_traces(gzip.decompress(packed), ranks, events, folder)
    runs = [_measure([*_CHILD, "command", *map(str, paths)]) for _ in range(repeats)]
    target_ns, target_bytes = RANKS_TARGETS.get((ranks, events), (None, None))
    return RanksBenchmark(
        ranks=ranks,
        events=events,
        file_bytes=sum(path.stat().st_size for path in paths),
        **_spreads(runs, "command_ns", "cpu_ns", "tree_peak_rss_bytes"),
        target_command_ns=target_ns,
        target_peak_rss_bytes=target_bytes,
    )


def _peer_benchmark(
    peers: Sequence[_Figures], ours: Sequence[_Figures], commands: Sequence[_Figures]
) -> PeerBenchmark:
    figures = ("import_ns", "read_ns", "analyze_ns", "work_ns", "peak_rss_bytes")
    return PeerBenchmark(
        name=peers[0]["name"],
        version=peers[0]["version"],
        **_spreads(peers, *figures),
        time_ratio=_ratios(peers, ours, "work_ns"),
        memory_ratio=_ratios(peers, commands, "peak_rss_bytes"),
    )


def _measure(command: list[str], cache_home: Path | str = os.devnull) -> _Figures:
    """The report of the process about itself, and the time from its start to its end. In the device
    `os.devnull`, nothing can be kept, so that it reads its file."""
    began = time.perf_counter_ns()
    environ = os.environ | {"XDG_CACHE_HOME": str(cache_home)}
    try:
        with running(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            printed, errors = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DecodescopeError(f"the measured process takes over {_TIMEOUT_S} s") from error
    command_ns = time.perf_counter_ns() - began
    if process.returncode:
        reason = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise DecodescopeError(f"the measured process failed: {' '.join(reason)}")
    try:
        figures = msgspec.json.decode(b"".join(printed.splitlines()[-1:]), type=_Figures)
    except msgspec.MsgspecError as error:
        raise DecodescopeError("the measured process printed no figures") from error
    return {"command_ns": command_ns, **figures}


def _measure_peer(python: Path, path: Path) -> _Figures:
    try:
        return _measure([str(python), str(_CHILD_FILE), "peer", str(path)])
    except OSError as error:
        raise InputError(f"--peer {python}: cannot be run ({error}); name a Python") from error
    except DecodescopeError as error:
        if "No module named 'hta'" not in str(error):
            raise InputError(
                f"--peer {python}: {error}; name a Python that has HolisticTraceAnalysis"
            ) from error
        raise InputError(
            f"--peer {python}: has no HolisticTraceAnalysis; install it there with: "
            "pip install HolisticTraceAnalysis 'pandas<3'"
        ) from error


def _spreads(runs: Sequence[_Figures], *figures: str) -> dict[str, Spread]:
    return {name: _spread([run[name] for run in runs]) for name in figures}


def _ratios(peers: Sequence[_Figures], ours: Sequence[_Figures], figure: str) -> Spread:
    pairs = zip(peers, ours, strict=True)
    return _spread([peer[figure] / own[figure] for peer, own in pairs])


def _spread(values: Sequence[int | float]) -> Spread:
    """A median of whole numbers is rounded down to one."""
    return Spread(min(values), type(values[0])(np.median(values)), max(values))
