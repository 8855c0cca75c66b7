"""`analyze`: the report of one trace, or of the ranks of one run."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, chosen_rows, json_option, rows_option
from decodescope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from decodescope.analyzer.reports.user_facts import Given


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
@rows_option
@given_options
def analyze_command(
    files: tuple[Path, ...],
    as_json: bool,
    output_format: str | None,
    show: str | None,
    by: str | None,
    **given_texts: Any,
) -> None:
    """Report what a trace contains: busy, idle, gaps, launches, steps, kernels, ranges.

    FILE may be a pipe, or - for the standard input.

    Several files are read as the ranks of one run: one report for each, and a merged one.
    """
    if as_json and output_format is not None:
        raise InputError(f"--json and --format {output_format}: give one of the two")
    output_format = "json" if as_json else output_format or "table"
    rows = chosen_rows(by, output_format)
    sections = _sections(show, output_format, len(files) > 1)
    facts = GivenOptions(**given_texts).read()
    if len(files) > 1:
        _analyze_ranks(files, output_format, rows, sections, facts)
        return
    from decodescope import analyzer

    analysis = analyzer.analyze(analyzer.load(files[0]), facts)
    if output_format == "json":
        print_json(analysis.report)
    elif output_format == "csv":
        from decodescope.analyzer.views.csv_export import render_csv

        click.echo(render_csv(analysis.report, rows), nl=False)
    elif output_format == "html":
        from decodescope.analyzer.exporting import html_page, source_name

        name = source_name(analysis)
        click.echo(html_page(name, {name: analysis}), nl=False)
    else:
        from decodescope.analyzer.views.report_table import report_table

        print_table(analysis.report, partial(report_table, show=sections))


def _sections(show: str | None, output_format: str, several: bool) -> tuple[str, ...]:
    """The sections that `--show` names, checked before a file is read."""
    if show is None:
        return ()
    if output_format != "table":
        raise InputError(f"--show {show}: only with a table; {output_format} has no sections")
    from decodescope.analyzer.views.ranks_table import ranks_sections
    from decodescope.analyzer.views.report_table import SECTIONS, chosen_sections

    return chosen_sections(show, ranks_sections() if several else SECTIONS)


def _analyze_ranks(
    files: tuple[Path, ...],
    output_format: str,
    rows: str,
    sections: tuple[str, ...],
    facts: "Given",
) -> None:
    from decodescope.analyzer.reports.rank_analysis import analyze_ranks

    ranks = analyze_ranks(files, facts)
    if output_format == "json":
        print_json(ranks.report)
    elif output_format == "table":
        from decodescope.analyzer.views.ranks_table import ranks_report_table

        print_table(ranks.report, partial(ranks_report_table, show=sections))
    elif output_format == "html":
        from decodescope.analyzer.exporting import ranks_page

        click.echo(ranks_page(ranks), nl=False)
    else:
        from decodescope.analyzer.views.csv_export import render_csv

        click.echo(render_csv(ranks.all_merged("--format csv").report, rows), nl=False)
