"""The help screen: all keys, the columns of the focused table, and the terms."""

import string
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from decodescope.analyzer.vocabulary.terms import read_terms
from decodescope.tui.commands import Command
from decodescope.tui.screens.dialogs import Dialog, framed
from decodescope.tui.style.palette import Inks

# What the header, the tracks and tables write; terms are in docs/terms.md.
_SIGNS = (
    ("ms p50, p99", "The median and the 99th percentile of the step time."),
    (
        "str, over, gaps",
        "A stream: the share of a column's time in which ops ran, in the colour of their family. "
        "Over: in which several ran at once. Gaps: the longest part of a gap in the column, higher "
        "for 2 \u00b5s, 10 \u00b5s, 100 \u00b5s, 1 ms, 10 ms and 1 s.",
    ),
    ("age", "Seconds since the worker last reported."),
    ("dropped", "Reports the worker dropped because the app was busy; it never waits for the app."),
    ("profiler \u00d7", "The observer effect: profiled step time \u00f7 unprofiled step time."),
    ("\u2013", "Not known, or not measured yet. Never a zero."),
)


_LEAST_CELLS = 14
_LETTERS = string.ascii_letters + string.digits


class HelpScreen(Dialog[None]):
    """Scrolls; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,space,enter", "close", "Close"),
        Binding("j", "scroll(1)", "Down"),
        Binding("k", "scroll(-1)", "Up"),
    ]

    def __init__(
        self,
        inks: Inks,
        local: tuple[Command, ...],
        everywhere: tuple[Command, ...],
        columns: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`local` are the commands of the focused panel, `everywhere` those of the app, `columns`
        the titles of the focused table with what they mean."""
        super().__init__()
        self._inks = inks
        self._local = local
        self._everywhere = everywhere
        self._columns = columns

    def compose(self) -> ComposeResult:
        pages = ("1\u20139", "Show that page")
        focus = ("tab", "Give the keys to the next panel of the page")
        sections: list[tuple[str, Sequence[tuple[str, str]]]] = [
            ("Keys of this panel", _keys(self._local)),
            ("Keys everywhere", [pages, focus, *_keys(self._everywhere)]),
            ("Columns of this table", self._columns),
            ("Signs", _SIGNS),
        ]
        for title, terms in groupby(read_terms(), key=attrgetter("section")):
            sections.append((f"Terms: {title}", [(term.name, term.definition) for term in terms]))
        with framed(VerticalScroll(), "decodescope help", "esc closes"):
            before = ""
            for title, rows in sections:
                if rows:
                    yield from self._section(f"{before}{title}", rows)
                    before = "\n"

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _section(self, title: str, rows: Sequence[tuple[str, str]]) -> Iterator[Static]:
        table = Table.grid(padding=(0, 2))
        width = max(_LEAST_CELLS, *(len(row[0]) for row in rows))
        table.add_column(width=width, no_wrap=True, style=self._inks.key)
        table.add_column(style=self._inks.text)
        for row in rows:
            table.add_row(*row)
        yield Static(Text(title, style=self._inks.title))
        yield Static(table)


def _keys(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Each command under its own key, where the footer shows the keys of two together."""
    keys = [command.shown_key for command in commands]
    for place, (key, after) in enumerate(pairwise(tuple(keys))):
        if key.strip(_LETTERS) == key:
            if len(key) > len(after) and key.endswith(after):
                keys[place] = key.removesuffix(after).strip()
            elif len(after) > len(key) and after.startswith(key):
                keys[place + 1] = after.removeprefix(key).strip()
    return [(key, f"{c.title}. {c.help}.") for key, c in zip(keys, commands, strict=True)]
