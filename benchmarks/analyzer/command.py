"""`analyzer`: the time and memory of `decodescope analyze`."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import FILE, json_option, number_option, output_option


@click.command("analyzer")
@json_option
@output_option
@number_option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
@number_option(
    "--events",
    type=click.IntRange(min=1000),
    default=230_000,
    show_default=True,
    help="How many events the trace has.",
)
@number_option(
    "--ranks",
    type=click.IntRange(min=2, max=1024),
    help="Also measure the files of so many ranks of one run, of 200,000 events each.",
)
@click.option(
    "--cache", is_flag=True, help="Also measure commands that keep the columns, and read those."
)
@click.option(
    "--peer",
    metavar="PYTHON",
    type=FILE,
    help="A Python that has HolisticTraceAnalysis, to measure on the same file.",
)
def command(
    as_json: bool,
    output: Path | None,
    repeats: int,
    events: int,
    ranks: int | None,
    cache: bool,
    peer: Path | None,
) -> None:
    """Time and memory to read and analyse a large trace (230,000 events are 62 MB)."""
    from benchmarks.analyzer.benchmark import run_analyzer_benchmark
    from benchmarks.analyzer.result_table import benchmark_table
    from decodescope.analyzer.recordings.bundled import bundled_recordings

    most_events = max(bundled_recordings(), key=lambda path: path.stat().st_size)
    check_writable(output, "-o", [most_events, peer])
    result = run_analyzer_benchmark(most_events, repeats, events, peer, ranks, cache)
    report_result(output, result, benchmark_table, as_json)
