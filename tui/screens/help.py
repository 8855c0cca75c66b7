"""The help screen: the keys and columns of the focused panel, all other keys, and the terms."""

import string
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from decodescope.analyzer.vocabulary.terms import read_terms
from decodescope.tui.commands import Command
from decodescope.tui.panels.sheet import Row, wrapped
from decodescope.tui.screens.dialogs import Dialog, framed

# What the header, the tracks and tables write; terms are in docs/terms.md.
_SIGNS = (
    ("ms p50, p99", "The median and the 99th percentile of the step time."),
    (
        "str, over, gaps",
        "A stream: the share of a column's time in which ops ran, in the colour of their part. "
        "Over: in which several ran at once. Gaps: the longest part of a gap in the column, higher "
        "for 2 \u00b5s, 10 \u00b5s, 100 \u00b5s, 1 ms, 10 ms and 1 s.",
    ),
    ("age", "Seconds since the worker last reported."),
    ("dropped", "Reports the worker dropped because the app was busy; it never waits for the app."),
    ("profiler \u00d7", "The observer effect: profiled step time \u00f7 unprofiled step time."),
    ("\u2013", "Not known, or not measured yet. Never a zero."),
)


_LEAST_CELLS, _SPACE = 14, 2
_LETTERS = string.ascii_letters + string.digits
# A title, and names with what they mean.
Section = tuple[str, Sequence[tuple[str, str]]]


class _Sections(Widget):
    """Sections below each other, wrapped once for a width."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--title", "help--name"}

    def __init__(self, sections: Sequence[Section]) -> None:
        super().__init__()
        self._sections = sections
        self._wrapped: tuple[int, list[tuple[str, str, str]]] = (0, [])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render_line(self, y: int) -> Strip:
        title, name, text = self._lines(self.size.width)[y]
        row = Row().add(title, self.get_component_rich_style("help--title"))
        row.add(name, self.get_component_rich_style("help--name")).add(text, Style.null())
        return row.strip(self.size.width, self.rich_style)

    def _lines(self, width: int) -> list[tuple[str, str, str]]:
        """Of each line the title, the name and the text."""
        if width != self._wrapped[0]:
            lines = [line for section in self._sections for line in _lines(width, *section)]
            self._wrapped = (width, lines[1:])
        return self._wrapped[1]


class HelpScreen(Dialog[None]):
    """Scrolls; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,space,enter", "close", "Close"),
        Binding("j", "scroll(1)", "Down"),
        Binding("k", "scroll(-1)", "Up"),
    ]

    def __init__(
        self,
        local: tuple[Command, ...],
        everywhere: tuple[Command, ...],
        columns: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`local` are the commands of the focused panel, `everywhere` those of the app, `columns`
        the titles of the focused table with what they mean."""
        super().__init__()
        self._local = local
        self._everywhere = everywhere
        self._columns = columns

    def compose(self) -> ComposeResult:
        pages = ("1\u20139", "Show that page")
        focus = ("tab", "Give the keys to the next panel of the page")
        sections: list[Section] = [
            ("Keys of this panel", _keys(self._local)),
            ("Columns of this table", self._columns),
            ("Keys everywhere", [pages, focus, *_keys(self._everywhere)]),
            ("Signs", _SIGNS),
        ]
        for title, terms in groupby(read_terms(), key=attrgetter("section")):
            sections.append((f"Terms: {title}", [(term.name, term.definition) for term in terms]))
        told = [section for section in sections if section[1]]
        with framed(VerticalScroll(), "decodescope help", "esc closes"):
            yield _Sections(told)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def _lines(
    width: int, title: str, entries: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    yield "", "", ""
    yield title, "", ""
    start = max(_LEAST_CELLS, *(len(name) for name, _ in entries)) + _SPACE
    for name, meaning in entries:
        for line in wrapped(meaning, max(width - start, 1)):
            yield "", name.ljust(start), line
            name = ""


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
