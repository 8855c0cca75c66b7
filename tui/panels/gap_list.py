"""The list of all gaps, the longest first."""

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.report import GAP_CLASSES, GapReport
from decodescope.analyzer.tables.gaps_table import gap_columns
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    interruptions_by_gap,
)
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.tui.model.picks import GapFilter, GapPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.gap_classes import no_gaps
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import (
    Cell,
    ColumnRows,
    Figures,
    Rows,
    Texts,
    drawing_of,
    ranked,
)
from decodescope.tui.style.palette import Inks

if TYPE_CHECKING:
    from decodescope.analyzer.reports.gap_list import GapChoice

TITLE = "Gaps"
_KEPT_REPORTS = 2_048
Key = tuple[int, int]


class GapRows(ColumnRows):
    """Gaps of one window, the longest first; a key is the window's identity and the gap's row in
    its analysis. What the host did is computed for one gap at a time."""

    def __init__(self, window: Window, choice: "GapChoice") -> None:
        from decodescope.analyzer.reports.device_report import gap_report
        from decodescope.analyzer.reports.gap_list import chosen_gaps, gap_classes, longest_first

        analysis, ranges, self._window = window.analysis, window.analysis.ranges, id(window)
        trace, all_gaps = analysis.trace, analysis.gaps
        self.gaps = longest_first(analysis, chosen_gaps(analysis, ranges, choice))
        self._places = np.full(len(all_gaps), -1, dtype=np.int64)
        self._places[self.gaps] = np.arange(len(self.gaps))
        self._report = lru_cache(_KEPT_REPORTS)(partial(gap_report, analysis, ranges))
        self._interruptions = interruptions_by_gap(all_gaps, analysis.interruptions)
        gaps = all_gaps.take(self.gaps)
        prev, after = trace.ops.name[gaps.prev], trace.ops.name[gaps.next]
        classes, node = gap_classes(analysis)[self.gaps], ranges.op_node[gaps.next]
        # The host's work is known of one gap at a time: nothing is sorted by it.
        figures: Figures = {
            "gap_class": ranked(classes, GAP_CLASSES),
            "at_ns": gaps.start_ns,
            "length_ns": gaps.length_ns,
            "prev": prev,
            "next": after,
            "range": ranked(node, ranges.paths),
            "call": np.append(trace.calls.name, -1)[gaps.call],
            "step": analysis.steps.op_step[gaps.next],
            "device": gaps.device,
        }
        held = list(self._interruptions.values())
        interruption = np.full(len(all_gaps), -1, dtype=np.int64)
        interruption[list(self._interruptions)] = np.arange(len(held))
        text_of = [*trace.names, ""].__getitem__
        texts: Texts = (
            (classes, GAP_CLASSES.__getitem__),
            (prev, text_of),
            (after, text_of),
            (prev, lambda name: short_name(trace.names[name])),
            (after, lambda name: short_name(trace.names[name])),
            (figures["call"], text_of),
            (node, [*ranges.paths, ""].__getitem__),
            (interruption[self.gaps], [*map(_interruption_words, held), ""].__getitem__),
        )
        names = ShortNames(trace.names[name] for name in set(trace.ops.name.tolist()))
        super().__init__(gap_columns(window.report.devices, names, _causes), figures, texts)
        # Flexible columns share what is left, each above its least: the room is that of the first.
        first = next(column.least_cells for column in self.columns if column.kind.flexible)
        self._drawings = [
            (drawing_of(column), column.least_cells - first) for column in self.columns[1:]
        ]

    def key(self, row: int) -> Key:
        return self._window, int(self.gaps[row])

    def place(self, key: Hashable) -> int | None:
        window, row = key if isinstance(key, tuple) else (0, -1)
        if window != self._window or not 0 <= row < len(self._places):
            return None
        place = int(self._places[row])
        return place if place >= 0 else None

    def key_of(self, row: int) -> Key:
        """The key of the gap in this row of the analysis."""
        return self._window, row

    def report(self, row: int) -> GapReport:
        """Everything about the gap in this row of the table."""
        return self._report(int(self.gaps[row]))

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        gap = self.report(row)
        mark = f"{GAP_LETTERS.get(gap.gap_class, '?')} " if inks.letters else ""
        causes = Cell(f"{mark}{_causes(gap)}", inks.gap(gap.gap_class))
        if int(self.gaps[row]) in self._interruptions:
            causes = Cell(f"{mark}interrupted, {_causes(gap)}", inks.warn)
        drawn = (draw(gap, inks, max(room + more, 1)) for draw, more in self._drawings)
        return [causes, *drawn]


class GapListPanel(TablePanel):
    """Every gap that the chosen class, bucket, step and range leave."""

    NAME = "gap_list"

    def source(self, view: View, moment: Moment) -> object:
        selection = view.selection
        return view.window, view.waiting, selection.within, selection.gaps

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        from decodescope.analyzer.reports.gap_list import GapChoice

        window, within, chosen = view.window, view.selection.within, view.selection.gaps
        if window is None:
            return Empty(TITLE, view.waiting)
        words = filter_words(chosen, within, "" if window.step is None else window.step_words)
        analysis = window.analysis
        if not len(analysis.gaps):
            return Empty(TITLE, no_gaps(window))
        choice = GapChoice(within, window.step, chosen.gap_class, chosen.bucket_ns)
        gaps = GapRows(window, choice)
        if not len(gaps):
            return Empty(TITLE, f"no gap here: {words}; esc shows more")
        self._title = f"{TITLE} {count(len(gaps))}{f': {words}' if words else ''}"
        return gaps

    def pick_of(self, key: Hashable) -> Pick | None:
        return GapPick(key[1]) if isinstance(key, tuple) else None

    def key_of(self, pick: Pick | None) -> Hashable:
        rows = self._shown
        if isinstance(pick, GapPick) and isinstance(rows, GapRows):
            return rows.key_of(pick.row)
        return None

    def opened(self, key: Hashable) -> None:
        self.post_message(Choose(self.pick_of(key)))
        self.post_message(Turn("timeline"))


def _interruption_words(interruptions: Iterable[Interruption]) -> str:
    causes = (each.cause.replace("_", " ") for each in interruptions)
    return ", ".join(f"interruption: {cause}" for cause in causes)


def _causes(gap: GapReport) -> str:
    """The class of the longest part, and how many parts follow."""
    return f"{gap.gap_class} +{len(gap.parts) - 1}" if len(gap.parts) > 1 else gap.gap_class


def filter_words(chosen: GapFilter, within: str | None, step: str) -> str:
    """The gaps that a filter leaves, in words; "" for everything."""
    parts = [chosen.gap_class] if chosen.gap_class else []
    if chosen.bucket_ns is not None:
        lower, upper = chosen.bucket_ns
        least = f"{duration(lower)} to " if lower > 0 else "up to "
        parts.append(f"{least}{duration(upper)}")
    parts += [step] if step else []
    if within is not None:
        parts.append(f"in {within}")
    return ", ".join(parts)
