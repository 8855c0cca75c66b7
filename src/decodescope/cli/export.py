"""`export`: an analysed trace as a file for another program."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.cli.analyze import analyzed
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, chosen_rows, rows_option
from decodescope.cli.output import say_written

if TYPE_CHECKING:
    from decodescope.analyzer.exporting import Target


@click.command()
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
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
@given_options
def export(
    files: tuple[Path, ...], target: "Target", output: Path, by: str | None, **given_texts: Any
) -> None:
    """Export an analysed trace: chrome (.json or .json.gz, for Perfetto), html or csv.

    Several files are the ranks of one run: they are put on one clock, with who waits for whom.
    """
    from decodescope.analyzer.exporting import export_analysis

    rows = chosen_rows(by, target)
    options = GivenOptions(**given_texts)
    check_writable(output, "-o", [*files, *options.files])
    export_analysis(analyzed(files, options.read()), target, output, rows)
    say_written(output, target)
