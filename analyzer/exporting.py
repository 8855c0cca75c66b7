"""Writes an analysed trace as a file for another program: a Chrome trace, a page or a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.html.report_page import VariantView, html_report
from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.rank_analysis import RanksAnalysis
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.tracks.build import step_tracks
from decodescope.analyzer.views.csv_export import render_csv

Target = Literal["chrome", "html", "csv"]


def export_analysis(
    analysis: Analysis,
    target: Target,
    path: Path,
    by: str = "kernel",
    ranks: RanksReport | None = None,
) -> None:
    """Write `path`, whole or not at all; `by` is what each row of a CSV describes. If the analysis
    is of merged `ranks`, a page also says who waits for whom.

    Raises:
        InputError: the file cannot be written.
    """
    if target == "chrome":
        export_chrome(analysis, path)
    elif target == "html":
        name = source_name(analysis) if ranks is None else "all ranks"
        title = name if ranks is None else ranks_title(ranks)
        page = html_page(title, {name: analysis}, ranks=ranks)
        write_atomically(path, page.encode(errors="replace"))
    else:
        write_atomically(path, render_csv(analysis.report, by).encode(errors="replace"))


def export_ranks(across: RanksAnalysis, target: Target, path: Path, by: str = "kernel") -> None:
    """Write `path`, whole or not at all: a page of each rank and of all, the Chrome trace of all on
    one clock, or a table of it.

    Raises:
        InputError: the file cannot be written, or the ranks share no clock.
    """
    if target == "html":
        write_atomically(path, ranks_page(across).encode(errors="replace"))
        return
    merged = across.all_merged(target)
    export_analysis(merged, target, path, by, across.report)


def ranks_page(across: RanksAnalysis) -> str:
    """An HTML page with one view for each rank and one of all, and who waits for whom."""
    analyses = {f"rank {rank}": analysis for rank, analysis in across.alone()}
    if across.merged is not None:
        analyses["all ranks"] = across.merged
    return html_page(ranks_title(across.report), analyses, ranks=across.report)


def ranks_title(ranks: RanksReport) -> str:
    return f"{len(ranks.ranks)} ranks"


def source_name(analysis: Analysis) -> str:
    """The name of the file that was analysed, `<stdin>` for the standard input."""
    return Path(analysis.report.source.path).name


def html_page(
    title: str,
    analyses: Mapping[str, Analysis],
    comparison: Comparison | Diff | None = None,
    ranks: RanksReport | None = None,
) -> str:
    """An HTML page with one view for each analysed window, in order, under its name; of `ranks`,
    also who waits for whom."""
    views = []
    for name, analysis in analyses.items():
        index = analysis.median_step
        step = None if index is None else step_tracks(analysis, index)
        views.append(VariantView(name, analysis.report, step))
    return html_report(title, views, comparison, ranks)
