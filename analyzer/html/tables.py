"""A declared table as HTML: escaped, sortable by its figures, with bars and swatches."""

import html
import re
from typing import TypeVar

from markupsafe import Markup

from decodescope.analyzer.tables.columns import Column, Mark, Table, Tone
from decodescope.analyzer.text.plain import plain_line

Row = TypeVar("Row")
_CODE_CELLS, _INDENT_PX = 60, 16
_ROW_CLASSES: dict[Tone, str] = {"dim": "sub", "strong": "total"}


def table_html(table: Table[Row], label: str, classes: str = "") -> Markup:
    """Every column that has a figure, in a frame that scrolls; how many rows are left out follows.
    `label` names the frame, `classes` are those of the table: "sortable", "long"."""
    columns = table.shown()
    heads = "".join(
        f'<th scope="col"{_class("n" if column.unit.number else "")}>{_text(column.heading)}</th>'
        for column in columns
    )
    rows = "".join(_row(table, columns, row) for row in table.rows)
    frame = (
        f'<div class="frame" role="region" tabindex="0" aria-label="{_text(label)}">'
        f"<table{_class(classes)}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>"
        "</table></div>"
    )
    if table.more:
        frame += f'\n<p class="dim">and {table.more} more {_text(table.noun)}</p>'
    return Markup(frame)


def breakable(name: str) -> Markup:
    """A name from code with line breaks allowed between its parts."""
    return Markup(re.sub(r"(::|[/_])", r"\1<wbr>", _text(name)))


def _row(table: Table[Row], columns: tuple[Column[Row], ...], row: Row) -> str:
    tone = table.tone(row) if table.tone is not None else "plain"
    cells = "".join(_cell(table, column, row, place == 0) for place, column in enumerate(columns))
    depth = f' data-depth="{table.depth(row)}"' if table.depth is not None else ""
    return f"<tr{_class(_ROW_CLASSES.get(tone, ''))}{depth}>{cells}</tr>\n"


def _cell(table: Table[Row], column: Column[Row], row: Row, first: bool) -> str:
    cut = column.code or column.fit is not None
    figure, text = column.figure(row), column.cell(row, _CODE_CELLS if cut else None)
    shown = breakable(text) if column.code else Markup(_text(text))
    attributes = ""
    if column.code and isinstance(figure, str):
        attributes = f' title="{_text(figure)}"'
    if first:
        if table.depth is not None:
            padding = f"padding-left:{table.depth(row) * _INDENT_PX}px"
            shown = Markup(f'<span class="label" style="{padding}">{shown}</span>')
        swatch = _swatch(table.mark(row)) if table.mark is not None else ""
        name = "name" if column.code else "n" if column.unit.number else ""
        return f'<th scope="row"{_class(name)}{attributes}>{swatch}{shown}</th>'
    if column.code:
        return f'<td class="name"{attributes}>{shown}</td>'
    if not column.unit.number:
        return f"<td>{shown}</td>" if column.wrap else f'<td class="nowrap">{shown}</td>'
    value = column.sorted_by(row)
    attributes = "" if value is None else f' data-v="{value}"'
    if column.bar:
        if figure:
            attributes += f' style="--w:{min(max(100 * figure, 0.0), 100.0):.1f}%"'
        return f'<td class="n bar"{attributes}>{shown}</td>'
    return f'<td class="n"{attributes}>{shown}</td>'


def _swatch(mark: Mark) -> str:
    if not mark.name:
        return ""
    kind = "f" if mark.kind == "family" else "g"
    return (
        '<svg class="swatch" viewBox="0 0 14 12" aria-hidden="true">'
        f'<rect width="14" height="12" class="{kind}-{_text(mark.name)}"/></svg>'
    )


def _text(text: str) -> str:
    return html.escape(plain_line(text))


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
