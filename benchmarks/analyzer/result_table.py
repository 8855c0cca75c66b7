"""The result of `analyzer` for a terminal."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.analyzer.benchmark import (
    PEER_MEMORY_TARGET,
    PEER_TIME_TARGET,
    AnalyzerBenchmark,
    Spread,
)


def benchmark_table(result: AnalyzerBenchmark) -> RenderableType:
    """Stages, the whole command, memory and the peer, each as min, median, max and target."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style="bold")
    for column in ("min", "median", "max", "target"):
        table.add_column(column, justify="right")
    _add_row(table, "import", result.import_ns, _seconds)
    _add_row(table, "read", result.read_ns, _seconds)
    _add_row(table, "analyse", result.analyze_ns, _seconds)
    _add_row(table, "encode JSON", result.encode_ns, _seconds)
    target = result.target_command_ns
    goal = f"at most {target / 1e9:.1f} s" if target else ""
    _add_row(table, "analyze --json", result.command_ns, _seconds, goal)
    limit = result.target_peak_rss_bytes
    goal = f"at most {limit / 1e6:.0f} MB" if limit else ""
    _add_row(table, "  its memory", result.peak_rss_bytes, _megabytes, goal)
    if (cache := result.cache) is not None:
        table.add_row(f"with a cache, of {_megabytes(cache.kept_bytes)}")
        _add_row(table, "  analyze --json, first", cache.first_command_ns, _seconds)
        _add_row(table, "  analyze --json, later", cache.command_ns, _seconds)
        _add_row(table, "  read, later", cache.read_ns, _seconds)
        _add_row(table, "  its memory", cache.peak_rss_bytes, _megabytes)
    if (ranks := result.ranks) is not None:
        table.add_row(f"{ranks.ranks} ranks of {ranks.events:,} events each")
        target = ranks.target_command_ns
        goal = f"at most {target / 1e9:.1f} s" if target else ""
        _add_row(table, "  analyze --json", ranks.command_ns, _seconds, goal)
        _add_row(table, "  its CPU time", ranks.cpu_ns, _seconds)
        limit = ranks.target_peak_rss_bytes
        goal = f"at most {limit / 1e6:.0f} MB" if limit else ""
        _add_row(table, "  its processes' memory", ranks.tree_peak_rss_bytes, _megabytes, goal)
    if (peer := result.peer) is not None:
        table.add_row(f"{peer.name} {peer.version}")
        _add_row(table, "  read", peer.read_ns, _seconds)
        _add_row(table, "  analyse", peer.analyze_ns, _seconds)
        _add_row(table, "  its memory", peer.peak_rss_bytes, _megabytes)
        goal = f"at least {PEER_TIME_TARGET:g}"
        _add_row(table, "  its time ÷ ours", peer.time_ratio, _times, goal)
        goal = f"at least {PEER_MEMORY_TARGET:g}"
        _add_row(table, "  its memory ÷ ours", peer.memory_ratio, _times, goal)
    title = Text(
        f"{result.events:,} events, {result.file_bytes / 1e6:.1f} MB of JSON, "
        f"{result.repeats} processes each",
        style="bold",
    )
    machine = ", ".join(f"{key} {value}" for key, value in result.environment.items() if value)
    notes = [] if result.peer else [Text("no peer: name a Python that has one with --peer")]
    return Group(title, table, *notes, Text(machine, style="dim"))


def _add_row(
    table: Table, name: str, spread: Spread, text: Callable[[float], str], goal: str = ""
) -> None:
    table.add_row(name, *map(text, (spread.min, spread.median, spread.max)), goal)


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.3f} s"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}"
