"""`export`: an analysed trace as a file for another program."""

from pathlib import Path

import rich_click as click

from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.output_paths import check_writable, output_path
from decodescope.cli.options import FILE, chosen_rows, rows_option
from decodescope.cli.output import html_page, say_written, source_name


@click.command()
@click.argument("file", type=FILE)
@click.option("--to", "target", type=click.Choice(["chrome", "html", "csv"]), required=True)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=output_path,
    required=True,
    help="The file to write; - is standard output.",
)
@rows_option
def export(file: Path, target: str, output: Path, by: str | None) -> None:
    """Export an analysed trace: chrome (.json or .json.gz, for Perfetto), html or csv."""
    from decodescope import analyzer
    from decodescope.analyzer.chrome.export import export_chrome
    from decodescope.analyzer.views.csv_export import render_csv

    rows = chosen_rows(by, target)
    check_writable(output, "-o", [file])
    analysis = analyzer.analyze(analyzer.load(file))
    if target == "chrome":
        export_chrome(analysis, output)
    elif target == "html":
        name = source_name(analysis)
        write_atomically(output, html_page(name, {name: analysis}).encode(errors="replace"))
    else:
        write_atomically(output, render_csv(analysis.report, rows).encode())
    say_written(output, target)
