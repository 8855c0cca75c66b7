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
    analysed: Analysis | RanksAnalysis,
    target: Target,
    path: Path,
    by: str = "kernel",
    ranks: RanksReport | None = None,
) -> None:
    """Write `path`, whole or not at all; `by` is what each row of a CSV describes. Of several
    ranks, a Chrome trace and a CSV are of all on one clock. `ranks` are those of an analysis of a
    merged trace.

    Raises:
        InputError: the file cannot be written, or the ranks share no clock.
    """
    if target == "html":
        write_atomically(path, analysis_page(analysed, ranks).encode(errors="replace"))
        return
    analysis = analysed.all_merged(target) if isinstance(analysed, RanksAnalysis) else analysed
    if target == "chrome":
        export_chrome(analysis, path)
    else:
        write_atomically(path, render_csv(analysis.report, by).encode(errors="replace"))


def analysis_page(analysed: Analysis | RanksAnalysis, ranks: RanksReport | None = None) -> str:
    """An HTML page of one trace, or with one view for each rank and one of all; of several ranks,
    also who waits for whom. `ranks` are those of an analysis of a merged trace."""
    if isinstance(analysed, RanksAnalysis):
        ranks = analysed.report
        analyses = {f"rank {rank}": analysis for rank, analysis in analysed.alone()}
        if analysed.merged is not None:
            analyses["all ranks"] = analysed.merged
    else:
        analyses = {source_name(analysed) if ranks is None else "all ranks": analysed}
    title = next(iter(analyses)) if ranks is None else f"{len(ranks.ranks)} ranks"
    return html_page(title, analyses, ranks=ranks)


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
