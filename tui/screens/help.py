"""The help screen: all keys, and what the figures mean."""

import string
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from decodescope.tui.commands import Command
from decodescope.tui.screens.dialogs import Dialog
from decodescope.tui.style.palette import Inks

FIGURES = (
    ("tok/s", "Tokens per second of all sequences together, over about the last second, measured "
     "without a profiler."),
    ("ms p50, p99", "How long a decode step took: the median and the 99th percentile."),
    ("launches", "Launch calls per step: calls by the host that put work on the GPU. A replayed "
     "CUDA graph is one call with many GPU ops."),
    ("GPU ops", "Kernels, copies and fills per step. On a CPU, the innermost operators are "
     "counted instead."),
    ("idle %", "Share of the captured window in which nothing ran on the GPU: window minus the "
     "union of all GPU ops."),
    ("MBU %", "Memory bandwidth used: bytes a step must read (weights and KV cache) ÷ step time ÷ "
     "peak; the measured peak of this GPU, or the datasheet's if there is none."),
    ("str, over, gaps", "A stream: the share of a column's time in which ops ran, in the colour of "
     "their kind. Over: in which several ran at once. Gaps: the longest part of a gap in the "
     "column, higher for 2 \u00b5s, 10 \u00b5s, 100 \u00b5s, 1 ms, 10 ms and 1 s."),
    ("age", "Seconds since the worker last reported."),
    ("dropped", "Reports the worker dropped because the app was busy; it never waits for the app."),
    ("profiler \u00d7", "A profiled step takes longer. Launches, ops, idle and the tables come "
     "from profiled windows; this is the time of a profiled step ÷ an unprofiled one."),
    ("\u2013", "Not known, or not measured yet. Never a zero."),
)  # fmt: skip
GAPS = (
    ("host_wait", "The part of a gap before the launch call of the next op: the CPU was late."),
    ("launch_call", "The part inside that launch call."),
    ("launch_latency", "The part after the call: launched, but started late."),
    (
        "dependency",
        "The same, if the next op waited for an event, a value in memory or another stream.",
    ),
    (
        "kernel_floor",
        "The same, if it is no longer than this GPU always needs between two kernels.",
    ),
    ("graph_internal", "Between two ops of the same CUDA graph launch."),
    ("unlinked", "The launch call is outside the trace, so the cause is unknown."),
)
VERDICT = (
    ("communication-bound", "Communication that no other op covers is the largest part of the "
     "window."),
    ("memory-bound", "A step reads its bytes at 60 % or more of the peak bandwidth."),
    ("compute-bound", "A step does its FLOPs at 60 % or more of the datasheet's peak for its "
     "dtype."),
    ("launch-bound", "host_wait, launch_call and launch_latency together take over 15 % of the "
     "window, and the queue holds at most one launch (median)."),
    ("kernels below", "None of these: the kernels and the gaps between them stay below the "
     "bandwidth."),
    ("bound unknown", "None of the first four, and the bandwidth is not known."),
    ("if profiled > \u00d71.25", "The verdict rests on the unprofiled step."),
)  # fmt: skip


_LEAST_CELLS = 14
_LETTERS = string.ascii_letters + string.digits


class HelpScreen(Dialog[None]):
    """Scrolls; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,space,enter", "close", "Close"),
        Binding("j", "scroll(1)", "Down"),
        Binding("k", "scroll(-1)", "Up"),
    ]
    CSS = (
        Dialog.CSS
        + """
    .box { width: 92; padding: 0 2; scrollbar-size-vertical: 1; }
    HelpScreen Static { height: auto; }
    """
    )

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
        keys = [("1\u20139", "Show that page")]
        keys += [("tab", "Give the keys to the next panel of the page")]
        keys += _keys(self._everywhere)
        local = _keys(self._local)
        with VerticalScroll(classes="box") as box:
            box.border_title = "decodescope help"
            box.border_subtitle = "esc closes"
            if local:
                yield from self._section("Keys of this panel", local)
            yield from self._section("\nKeys everywhere" if local else "Keys everywhere", keys)
            if self._columns:
                yield from self._section("\nColumns of this table", self._columns)
            yield from self._section("\nFigures", FIGURES)
            yield from self._section("\nWhy the GPU was idle", GAPS)
            yield from self._section("\nVerdict", VERDICT)

    def action_scroll(self, lines: int) -> None:
        """Scroll by `lines`."""
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
