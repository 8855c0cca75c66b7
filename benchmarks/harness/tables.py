"""Tables of figures for a terminal."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.report import Environment
from decodescope.analyzer.text.formatting import UNKNOWN, percent
from decodescope.variants.tuning.report import machine_text


def figures_table(title: str, *columns: str, names: int = 0) -> Table:
    """An empty table: the first `names` columns hold names, the others right-aligned figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)
    for number, column in enumerate(columns):
        is_name = number < names
        table.add_column(column, justify="left" if is_name else "right", no_wrap=is_name)
    return table


def share_cell(share: float | None) -> str:
    """A share as a percentage, or the mark of an unknown figure."""
    return UNKNOWN if share is None else f"{percent(share)} %"


def names_and_figures(names: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    """An empty table: columns of names, then right-aligned figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", overflow="fold")
    return table


def result_page(
    title: str,
    table: Table,
    notes: list[str],
    environment: Environment,
    errors: tuple[str, ...] = (),
) -> RenderableType:
    """A title, a table, the errors, notes, and the machine and versions of the measurement."""
    failed = [Text(error, style="bold red") for error in errors]
    return Group(
        Text(title, style="bold"),
        table,
        *failed,
        *(Text(note, style="dim") for note in notes),
        Text(machine_text(environment), style="dim"),
    )
