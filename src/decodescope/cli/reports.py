"""The commands about recorded traces: analyze, diff, export, bench analyzer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from decodescope.analyzer.errors import InputError, RegressionFound
from decodescope.analyzer.files import check_writable, write_atomically
from decodescope.cli.options import FILE
from decodescope.cli.terminal_io import json_bytes, print_json, print_rich, say

if TYPE_CHECKING:
    from decodescope.analyzer import Analysis
    from decodescope.analyzer.html.report_page import VariantView
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate


@click.command()
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--format", "output_format", type=click.Choice(["table", "csv", "html"]), default="table"
)
@click.option("--by", type=click.Choice(["kernel", "range", "gap"]), default="kernel")
def analyze(files: tuple[Path, ...], as_json: bool, output_format: str, by: str) -> None:
    """Say what a trace says: busy, idle, gaps, launches, steps, kernels, ranges.

    Several files are taken for the ranks of one run: one report each, and a merged one.
    """
    if len(files) > 1:
        _analyze_ranks(files, as_json, output_format, by)
        return
    from decodescope import analyzer

    analysis = analyzer.analyze(analyzer.load(files[0]))
    if as_json:
        print_json(analysis.report)
    elif output_format == "csv":
        from decodescope.analyzer.views.csv_export import render_csv

        click.echo(render_csv(analysis.report, by), nl=False)
    elif output_format == "html":
        click.echo(_page(files[0].name, [_view(files[0].name, analysis)]), nl=False)
    else:
        from decodescope.analyzer.views.table import report_table

        print_rich(report_table(analysis.report, by))


@click.command()
@click.argument("base", metavar="A", type=FILE)
@click.argument("other", metavar="B", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print both reports and the changes as JSON.")
@click.option("--out", metavar="DIR", type=FILE, help="Write diff.json, diff.md and diff.html.")
@click.option(
    "--fail-on-regression",
    metavar="PCT",
    type=click.FloatRange(min=0),
    help="Exit with 1 where B's step is slower than A's by more than this.",
)
def diff(
    base: Path, other: Path, as_json: bool, out: Path | None, fail_on_regression: float | None
) -> None:
    """Say what changed from trace A to trace B."""
    from decodescope import analyzer
    from decodescope.analyzer.comparing.diff import diff_reports
    from decodescope.analyzer.comparing.regression_gate import gate_diff

    analyses = [analyzer.analyze(analyzer.load(file)) for file in (base, other)]
    result = diff_reports(analyses[0].report, analyses[1].report)
    if fail_on_regression is not None:
        result = gate_diff(result, fail_on_regression)
    if out is not None:
        from decodescope.analyzer.views.comparison_markdown import diff_markdown

        names = ("A: " + base.name, "B: " + other.name)
        views = [_view(name, one) for name, one in zip(names, analyses, strict=True)]
        page = _page(f"{base.name} → {other.name}", views, result)
        write_outputs(out, "diff", json_bytes(result), diff_markdown(result), page)
    if as_json:
        print_json(result)
    else:
        from decodescope.analyzer.views.comparison_table import diff_table

        print_rich(diff_table(result))
    end_on_regression(result.gate)


@click.command()
@click.argument("file", type=FILE)
@click.option("--to", "target", type=click.Choice(["chrome", "html", "csv"]), required=True)
@click.option("-o", "--output", metavar="OUT", type=FILE, required=True)
@click.option(
    "--by",
    type=click.Choice(["kernel", "range", "gap"]),
    default="kernel",
    show_default=True,
    help="What the rows of csv are.",
)
def export(file: Path, target: str, output: Path, by: str) -> None:
    """Export an analysed trace: chrome (.json or .json.gz, for Perfetto), html or csv."""
    from decodescope import analyzer
    from decodescope.analyzer.chrome.export import export_chrome
    from decodescope.analyzer.views.csv_export import render_csv

    check_writable(output, "-o")
    analysis = analyzer.analyze(analyzer.load(file))
    if target == "chrome":
        export_chrome(analysis, output)
    elif target == "html":
        write_atomically(output, _page(file.name, [_view(file.name, analysis)]).encode())
    else:
        write_atomically(output, render_csv(analysis.report, by).encode())
    say(f"wrote {output} ({target})")


@click.command("analyzer")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write the JSON to a file.")
@click.option("--repeats", metavar="N", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--events",
    metavar="N",
    type=click.IntRange(min=1000),
    default=230_000,
    show_default=True,
    help="How many events the trace has.",
)
@click.option(
    "--peer",
    metavar="PYTHON",
    type=FILE,
    help="A Python that has HolisticTraceAnalysis, to measure on the same file.",
)
def bench_analyzer(
    as_json: bool, output: Path | None, repeats: int, events: int, peer: Path | None
) -> None:
    """Time and memory to read and analyse a large trace (230,000 events are 62 MB)."""
    from decodescope.analyzer.bench.benchmark import run_analyzer_benchmark
    from decodescope.analyzer.bench.result_table import benchmark_table
    from decodescope.analyzer.recordings.bundled import bundled_recordings

    check_writable(output, "-o")
    most_events = max(bundled_recordings(), key=lambda path: path.stat().st_size)
    result = run_analyzer_benchmark(most_events, repeats, events, peer)
    if output is not None:
        write_atomically(output, msgspec.json.format(json_bytes(result)) + b"\n")
        say(f"wrote {output}")
    if as_json:
        print_json(result)
    else:
        print_rich(benchmark_table(result))


def comparison_page(
    title: str, analyses: dict[str, "Analysis"], comparison: "Comparison | Diff"
) -> str:
    """The HTML page of a comparison, one view for each analysed window."""
    return _page(title, [_view(name, one) for name, one in analyses.items()], comparison)


def write_outputs(folder: Path, name: str, json: bytes, markdown: str, page: str) -> None:
    """The three files of a comparison; the folder is made where it is missing.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot be made ({error}); name a folder") from error
    contents = {"json": msgspec.json.format(json) + b"\n", "md": markdown.encode()}
    for suffix, content in {**contents, "html": page.encode()}.items():
        path = folder / f"{name}.{suffix}"
        check_writable(path, "--out")
        write_atomically(path, content)
    say(f"wrote {name}.json, {name}.md and {name}.html to {folder}")


def end_on_regression(gate: "Gate | None") -> None:
    """Raise `RegressionFound` where the gate failed, with every reason on one line."""
    if gate is not None and gate.failures:
        raise RegressionFound("regression: " + "; ".join(gate.failures))


def _analyze_ranks(files: Sequence[Path], as_json: bool, output_format: str, by: str) -> None:
    from decodescope.analyzer.reports.ranks import analyze_ranks

    ranks = analyze_ranks(files)
    if as_json:
        print_json(ranks.report)
    elif output_format == "table":
        from decodescope.analyzer.views.ranks_table import ranks_table

        print_rich(ranks_table(ranks.report, by))
    elif output_format == "html":
        views = [_view(f"rank {rank}", analysis) for rank, analysis in ranks.ranks]
        if ranks.merged is not None:
            views.append(_view("all ranks", ranks.merged))
        click.echo(_page(f"{len(ranks.ranks)} ranks", views), nl=False)
    elif ranks.merged is None:
        reasons = "; ".join(finding.message for finding in ranks.report.findings)
        raise InputError(f"--format csv: the ranks cannot be merged ({reasons}); give one file")
    else:
        from decodescope.analyzer.views.csv_export import render_csv

        click.echo(render_csv(ranks.merged.report, by), nl=False)


def _view(name: str, analysis: "Analysis") -> "VariantView":
    from decodescope.analyzer.html.report_page import VariantView
    from decodescope.analyzer.timing.steps import median_step

    index = median_step(analysis.trace, analysis.steps)
    timeline = None if index is None else analysis.step_timeline(index)
    return VariantView(name, analysis.report, timeline)


def _page(
    title: str, views: "Sequence[VariantView]", comparison: "Comparison | Diff | None" = None
) -> str:
    from decodescope.analyzer.html.report_page import html_report

    return html_report(title, views, comparison)
