"""`analyze`: the report of one trace, or of the ranks of one run."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, chosen_rows, file_option, json_option, rows_option
from decodescope.cli.output import print_json, print_table, table_text

if TYPE_CHECKING:
    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.reports.rank_analysis import RanksAnalysis
    from decodescope.analyzer.reports.user_facts import Given
    from decodescope.analyzer.schema.ranks_report import RanksReport
    from decodescope.analyzer.schema.report import Report

_SUMMARY_CELLS = 100


@click.command("analyze")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@json_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "csv", "html"]),
    help="[default: table]",
)
@click.option(
    "--show",
    metavar="NAME,…|all",
    help="Sections of the table to print whole, as kernels,gaps; the overview names them. "
    "[default: an overview of at most 60 lines]",
)
@click.option(
    "--summary",
    is_flag=True,
    help="Print the answer in at most 30 lines of 100 columns, as the MCP tool answer returns it.",
)
@rows_option
@file_option(
    "--keep",
    help="Where to keep the SQLite export of an .nsys-rep. [default: the cache folder, for the "
    "last four]",
)
@given_options
def analyze_command(
    files: tuple[Path, ...],
    as_json: bool,
    output_format: str | None,
    show: str | None,
    summary: bool,
    by: str | None,
    keep: Path | None,
    **given_texts: Any,
) -> None:
    """Report what a trace contains: busy, idle, gaps, launches, steps, kernels, ranges.

    FILE may be a pipe, or - for the standard input.

    Several files are read as the ranks of one run: one report for each, and a merged one.
    """
    if as_json and output_format is not None:
        raise InputError(f"--json and --format {output_format}: give one of the two")
    if summary and (as_json or output_format or show):
        raise InputError("--summary: prints text; leave out --json, --format and --show")
    output_format = "json" if as_json else output_format or "table"
    rows = chosen_rows(by, output_format)
    sections = _sections(show, output_format, len(files) > 1)
    facts = GivenOptions(**given_texts).read()
    analysed = analyzed(files if keep is None else (_kept_export(files, keep),), facts)
    if summary:
        click.echo(summary_text(analysed.report))
    elif output_format == "csv":
        from decodescope.analyzer.reports.rank_analysis import RanksAnalysis
        from decodescope.analyzer.views.csv_export import render_csv

        if isinstance(analysed, RanksAnalysis):
            analysed = analysed.all_merged("--format csv")
        click.echo(render_csv(analysed.report, rows), nl=False)
    elif output_format == "html":
        from decodescope.analyzer.exporting import analysis_page

        click.echo(analysis_page(analysed), nl=False)
    else:
        limits_ns = _step_limits_ns(analysed) if "steps" in sections else {}
        print_report(analysed.report, as_json, sections, limits_ns)


def _kept_export(files: Sequence[Path], keep: Path) -> Path:
    """The export of the only file, a report of Nsight Systems, in `keep`."""
    from decodescope.analyzer.io.output_paths import check_writable
    from decodescope.analyzer.readers.nsys.report_export import export
    from decodescope.analyzer.readers.reading import NSYS_REPORT_SUFFIXES

    if len(files) != 1 or files[0].suffix not in NSYS_REPORT_SUFFIXES:
        raise InputError(f"--keep {keep}: only with one report of Nsight Systems (.nsys-rep)")
    check_writable(keep, "--keep", files)
    try:
        export(files[0], keep)
    except OSError as error:
        raise InputError(f"--keep {keep}: cannot be written ({error.strerror})") from error
    return keep


def summary_text(report: "Report | RanksReport") -> str:
    """The answer of a report as text: who asks for it is a person at a terminal, or a model."""
    from decodescope.analyzer.views.ranks_table import brief_report_table
    from decodescope.analyzer.views.report_table import SUMMARY_LINES

    text = table_text(report, brief_report_table, _SUMMARY_CELLS)
    return "\n".join(text.splitlines()[:SUMMARY_LINES])


def _step_limits_ns(analysed: "Analysis | RanksAnalysis") -> dict[int, int]:
    """The limits of the steps that the table of steps shows; ranks have no such table."""
    from decodescope.analyzer.reports.analysis import Analysis, step_limits_ns
    from decodescope.analyzer.views.report_table import MOST_ROWS

    if not isinstance(analysed, Analysis):
        return {}
    shown = analysed.report.steps[:MOST_ROWS]
    return step_limits_ns(analysed, (step.index for step in shown if step.gpu_ops))


def analyzed(files: Sequence[Path], facts: "Given") -> "Analysis | RanksAnalysis":
    """The analysis of one file, or of several as the ranks of one run."""
    from decodescope import analyzer

    if len(files) > 1:
        return analyzer.analyze_ranks(files, facts)
    return analyzer.analyze(analyzer.load(files[0]), facts)


def print_report(
    report: "Report | RanksReport",
    as_json: bool,
    sections: tuple[str, ...] = (),
    limits_ns: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Print a report as JSON, or as a table with `sections` of it whole, with the limits of its
    steps that are known."""
    from decodescope.analyzer.schema.report import Report

    if as_json:
        print_json(report)
    elif isinstance(report, Report):
        from decodescope.analyzer.views.report_table import report_table

        print_table(report, partial(report_table, show=sections, limits_ns=limits_ns))
    else:
        from decodescope.analyzer.views.ranks_table import ranks_report_table

        print_table(report, partial(ranks_report_table, show=sections))


def _sections(show: str | None, output_format: str, several: bool) -> tuple[str, ...]:
    """The sections that `--show` names, checked before a file is read."""
    if show is None:
        return ()
    if output_format != "table":
        raise InputError(f"--show {show}: only with a table; {output_format} has no sections")
    from decodescope.analyzer.views.ranks_table import ranks_sections
    from decodescope.analyzer.views.report_table import SECTIONS, chosen_sections

    return chosen_sections(show, ranks_sections() if several else SECTIONS)
