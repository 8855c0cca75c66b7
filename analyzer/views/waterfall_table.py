"""A waterfall as a table: the parts of one step, their shares, and a bar for each."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from decodescope.analyzer.formatting import duration, signed_duration
from decodescope.analyzer.schema.report import GAP_CLASSES, WaterfallPart
from decodescope.analyzer.views.words import part_words

_BAR_CELLS = 32


def waterfall_table(parts: Sequence[WaterfallPart], width: int = 80) -> Table:
    """Every part but the gap classes that did not occur; bars leave room for `width`."""
    bar_cells = max(min(_BAR_CELLS, width - 48), 8)
    total = sum(part.ns for part in parts)
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, show_footer=True)
    table.add_column(footer="step")
    table.add_column(justify="right", footer=duration(total))
    table.add_column(justify="right", footer="")
    table.add_column(footer="")
    for part in parts:
        if part.ns == 0 and part.part in GAP_CLASSES:
            continue
        share = part.ns / total if total else 0.0
        table.add_row(
            part_words(part.part),
            signed_duration(part.ns),
            f"{share * 100:.1f} %",
            "█" * round(min(max(share, 0.0), 1.0) * bar_cells),
        )
    return table
