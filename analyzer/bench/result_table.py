"""The result of `bench analyzer` for a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.bench.benchmark import (
    PEER_MEMORY_TARGET,
    PEER_TIME_TARGET,
    AnalyzerBenchmark,
    PeerBenchmark,
    Ratio,
    Spread,
)


def benchmark_table(result: AnalyzerBenchmark) -> RenderableType:
    """Stages, the whole command, memory and the peer, each as min, median, max and target."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style="bold")
    for column in ("min", "median", "max", "target"):
        table.add_column(column, justify="right")
    stages = {
        "import": result.import_ns,
        "read": result.read_ns,
        "analyse": result.analyze_ns,
        "encode JSON": result.encode_ns,
    }
    for name, spread in stages.items():
        table.add_row(name, *_seconds(spread))
    target = result.target_command_ns
    goal = f"at most {target / 1e9:.1f} s" if target else ""
    table.add_row("analyze --json", *_seconds(result.command_ns), goal)
    limit = result.target_peak_rss_bytes
    table.add_row(
        "  its memory",
        *_megabytes(result.peak_rss_bytes),
        f"at most {limit / 1e6:.0f} MB" if limit else "",
    )
    if result.peer is not None:
        _peer_rows(table, result.peer)
    title = Text(
        f"{result.events:,} events, {result.file_bytes / 1e6:.1f} MB of JSON, "
        f"{result.repeats} processes each",
        style="bold",
    )
    machine = ", ".join(f"{key} {value}" for key, value in result.environment.items() if value)
    notes = [] if result.peer else [Text("no peer: name a Python that has one with --peer")]
    return Group(title, table, *notes, Text(machine, style="dim"))


def _peer_rows(table: Table, peer: PeerBenchmark) -> None:
    table.add_row(f"{peer.name} {peer.version}")
    table.add_row("  read", *_seconds(peer.read_ns))
    table.add_row("  analyse", *_seconds(peer.analyze_ns))
    table.add_row("  its memory", *_megabytes(peer.peak_rss_bytes))
    table.add_row("  its time ÷ ours", *_times(peer.time_ratio), f"at least {PEER_TIME_TARGET:g}")
    table.add_row(
        "  its memory ÷ ours", *_times(peer.memory_ratio), f"at least {PEER_MEMORY_TARGET:g}"
    )


def _seconds(spread: Spread) -> list[str]:
    return [f"{ns / 1e9:.3f} s" for ns in (spread.min, spread.median, spread.max)]


def _megabytes(spread: Spread) -> list[str]:
    return [f"{size / 1e6:.0f} MB" for size in (spread.min, spread.median, spread.max)]


def _times(ratio: Ratio) -> list[str]:
    return [f"{value:.2f}" for value in (ratio.min, ratio.median, ratio.max)]
