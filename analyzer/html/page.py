"""Renders the templates to one self-contained page: style and script are inside it.

Text from a trace or a model is escaped, and its control characters are made visible. The content
security policy of the page forbids every request and every script except its own.
"""

import base64
import hashlib
import html
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from decodescope.analyzer.html.svg_step_time import bars_svg, launches_svg, queue_svg
from decodescope.analyzer.html.svg_timeline import step_svg
from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.tables.columns import Column, Mark, Table, Tone
from decodescope.analyzer.text import formatting
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary import answer_words, class_colors, words

Row = TypeVar("Row")
_CODE_CELLS, _INDENT_PX = 60, 16
_ROW_CLASSES: dict[Tone, str] = {"dim": "sub", "strong": "total"}
_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPT = "report.js"


def table_html(table: Table[Row], label: str, classes: str = "") -> Markup:
    """Every column that has a figure, in a frame that scrolls; how many rows are left out follows.
    `label` names the frame, `classes` are those of the table: "sortable", "long"."""
    columns = table.shown()
    heads = "".join(
        f'<th scope="col"{_class("n" if column.number else "")}>{_text(column.heading)}</th>'
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


def tables_of(subject: str) -> ModuleType:
    """The module of the tables about `subject`: "gaps" is analyzer/tables/gaps_table.py."""
    return import_module(f"decodescope.analyzer.tables.{subject}_table")


def breakable(name: str) -> Markup:
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
        name = "name" if column.code else "n" if column.number else ""
        return f'<th scope="row"{_class(name)}{attributes}>{swatch}{shown}</th>'
    if column.code:
        return f'<td class="name"{attributes}>{shown}</td>'
    if not column.number:
        return f"<td>{shown}</td>" if column.wrap else f'<td class="nowrap">{shown}</td>'
    value = column.sorted_by(row)
    attributes = "" if value is None else f' data-v="{value}"'
    if column.bar:
        if figure and not table.is_total(row):
            attributes += f' style="--w:{min(max(100 * figure, 0.0), 100.0):.1f}%"'
        return f'<td class="n bar"{attributes}>{shown}</td>'
    return f'<td class="n"{attributes}>{shown}</td>'


def _swatch(mark: Mark) -> str:
    if not mark.name:
        return ""
    return (
        '<svg class="swatch" viewBox="0 0 14 12" aria-hidden="true">'
        f'<rect width="14" height="12" class="{mark.kind[0]}-{_text(mark.name)}"/></svg>'
    )


def _text(text: str) -> str:
    return html.escape(plain_line(text))


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def render_page(**values: Any) -> str:
    """`report.html.j2` rendered with `values`."""
    script = (_TEMPLATES / _SCRIPT).read_text(encoding="utf-8")
    page = _environment().get_template("report.html.j2")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.render(script=Markup(script), script_hash=f"sha256-{digest}", **values)


@cache
def _environment() -> Environment:
    """It compiles the templates once a process; that takes longer than to render them."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "count": formatting.count,
        "duration": formatting.duration,
        "number": formatting.number,
    }
    environment.globals |= {
        "answer_words": answer_words,
        "colors": class_colors,
        "cut": cut_middle,
        "table": table_html,
        "bars_svg": bars_svg,
        "launches_svg": launches_svg,
        "queue_svg": queue_svg,
        "step_svg": step_svg,
        "tables": tables_of,
        "weights_note": formatting.weights_note,
        "words": words,
    }
    return environment


def _shown(value: Any) -> Any:
    """The value of a template's expression as it is shown, before escaping."""
    if value is None:
        return UNKNOWN
    return plain_line(value) if type(value) is str else value
