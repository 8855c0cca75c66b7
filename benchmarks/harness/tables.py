"""Tables of figures for a terminal."""

from rich import box
from rich.table import Table

from decodescope.analyzer.text.formatting import UNKNOWN, percent


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
