"""The gaps in groups, the largest first, or each by itself, the longest first."""

import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from decodescope.analyzer.names.fitted_names import ShortNames, cut_middle, cut_start
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.report import GAP_CLASSES, GapGroup, GapReport
from decodescope.analyzer.tables.columns import Mark, Table
from decodescope.analyzer.tables.gaps_table import gap_columns, gap_group_columns, host_words
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    interruptions_by_gap,
)
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.vocabulary.class_colors import GAP_LETTERS
from decodescope.analyzer.vocabulary.words import device_words
from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import GapFilter, GapGroupPick, GapPick, Pick
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.gap_classes import no_gaps
from decodescope.tui.panels.messages import Choose, Turn
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_rows import (
    Cell,
    ColumnRows,
    Figures,
    Rows,
    TableRows,
    Texts,
    drawing_of,
    ranked,
)
from decodescope.tui.panels.tree import Branch, TreePanel
from decodescope.tui.style.palette import Glyphs, Inks

if TYPE_CHECKING:
    from decodescope.analyzer.reports.gap_list import GapChoice

TITLE = "Gaps"
_KEPT_REPORTS = 2_048
Key = tuple[int, int]


class GapRows(ColumnRows):
    """The gaps in these rows of a window's analysis; a key is the window's identity and such a
    row. What the host did is computed for one gap at a time."""

    def __init__(self, window: Window, gap_rows: Int64s) -> None:
        from decodescope.analyzer.reports.device_report import gap_report
        from decodescope.analyzer.reports.gap_list import gap_classes

        analysis, ranges, self._window = window.analysis, window.analysis.ranges, id(window)
        trace, all_gaps, self.gaps = analysis.trace, analysis.gaps, gap_rows
        self._places = np.full(len(all_gaps), -1, dtype=np.int64)
        self._places[self.gaps] = np.arange(len(self.gaps))
        self._report = lru_cache(_KEPT_REPORTS)(partial(gap_report, analysis, ranges))
        self._interruptions = interruptions_by_gap(all_gaps, analysis.interruptions)
        gaps = all_gaps.take(self.gaps)
        prev, after = trace.ops.name[gaps.prev], trace.ops.name[gaps.next]
        in_order = np.argsort(self.gaps)
        classes = np.empty(len(gaps), dtype=np.int8)
        classes[in_order] = gap_classes(analysis, self.gaps[in_order])
        node = ranges.op_node[gaps.next]
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
        used = np.flatnonzero(np.bincount(trace.ops.name))
        names = ShortNames(trace.names[name] for name in used)
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
        causes = self.causes(row, inks)
        drawn = (draw(gap, inks, max(room + more, 1)) for draw, more in self._drawings)
        return [replace(causes, text=mark + causes.text), *drawn]

    def causes(self, row: int, inks: Inks) -> Cell:
        gap = self.report(row)
        if int(self.gaps[row]) in self._interruptions:
            return Cell(f"interrupted, {_causes(gap)}", inks.warn)
        return Cell(_causes(gap), inks.gap(gap.gap_class))


class GapGroupRows(Rows):
    """Groups of gaps, numbered from 0, and behind them the gaps of those that are open. The key of
    a group is its pick, that of a gap as in `GapRows`."""

    def __init__(
        self, window: Window, grouped: "Grouped", open_groups: Sequence[int], glyphs: Glyphs
    ) -> None:
        groups, bounds = grouped.groups, grouped.bounds
        names = ShortNames(name for group in groups for name in (group.prev, group.next))
        columns = gap_group_columns(sum(group.total_ns for group in groups), names)
        mark: Callable[[GapGroup], Mark] = lambda group: Mark("gap", group.gap_class)  # noqa: E731
        self._several = len(window.report.devices) > 1
        self._groups = TableRows(Table("groups", columns, groups, key=_pick, mark=mark), glyphs)
        self.columns = self._groups.columns
        slices = [grouped.gap_rows[slice(*bounds[group : group + 2])] for group in open_groups]
        self.gaps = GapRows(window, np.concatenate([grouped.gap_rows[:0], *slices]))
        begins = len(groups) + np.cumsum([0, *map(len, slices)])
        self._below = dict(zip(open_groups, pairwise(begins.tolist()), strict=False))
        self._above = np.repeat(np.array(open_groups, dtype=np.int64), list(map(len, slices)))

    def __len__(self) -> int:
        return len(self._groups) + len(self.gaps)

    def key(self, row: int) -> Hashable:
        gap = row - len(self._groups)
        return self._groups.key(row) if gap < 0 else self.gaps.key(gap)

    def place(self, key: Hashable) -> int | None:
        if isinstance(key, GapGroupPick):
            return self._groups.place(key)
        gap = self.gaps.place(key)
        return None if gap is None else len(self._groups) + gap

    def branch(self, row: int) -> Branch:
        gap = row - len(self._groups)
        if gap < 0:
            return Branch(self.key(row), is_open=row in self._below)
        return Branch(self.key(row), self._groups.key(int(self._above[gap])), 1)

    def cells(self, row: int, inks: Inks, room: int) -> Sequence[Cell]:
        lead, gap = self.branch(row).lead, row - len(self._groups)
        if gap < 0:
            cells = self._groups.cells(row, inks, room)
            return [
                replace(cell, text=lead * (place == 1) + cell.text)
                for place, cell in enumerate(cells)
            ]
        report, causes = self.gaps.report(gap), self.gaps.causes(gap, inks)
        where = report.range or host_words(report) or ""
        step = "" if report.step is None else f"step {report.step} "
        at = f"{step}at {duration(report.at_ns)}"
        at += f", {device_words(report.device)}" if self._several else ""
        texts = {
            "gap_class": replace(causes, text=lead + causes.text),
            "total_ns": Cell(duration(report.length_ns)),
            "prev": Cell(cut_middle(at, room), inks.dim),
            "next": Cell(cut_start(where, room), inks.dim),
        }
        return [texts.get(column.key, Cell("")) for column in self.columns]

    def text(self, row: int) -> str:
        gap = row - len(self._groups)
        return self._groups.text(row) if gap < 0 else self.gaps.text(gap)

    def order(self, column: int | None, down: bool) -> Sequence[int]:
        order: list[Int64s] = []
        for group in self._groups.order(column, down):
            below = np.arange(*self._below.get(group, (0, 0)))
            order += [np.array([group]), below if down else below[::-1]]
        return array("q", np.concatenate(order).tobytes())

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        gaps = {len(self._groups) + gap for gap in self.gaps.matching(pattern)}
        return self._groups.matching(pattern) | gaps


def _pick(group: GapGroup) -> GapGroupPick:
    return GapGroupPick(group.gap_class, group.prev, group.next)


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """The groups of the gaps that a choice leaves in a window, the rows of all of these gaps by
    group, and where those of each group begin and the last ones end."""

    window: Window
    choice: "GapChoice"
    groups: Sequence[GapGroup]
    gap_rows: Int64s
    bounds: Int64s


class GapListPanel(TreePanel):
    """The gaps that the chosen class, bucket, step and range leave, in groups or each by itself.
    The group of a gap that is selected is open."""

    NAME = "gap_list"
    COMMANDS = commands_of("rows", "open", "tree", "grouped")

    _by_group = True
    _grouped: Grouped | None = None

    def source(self, view: View, moment: Moment) -> object:
        selection = view.selection
        of = (view.window, view.waiting, selection.within, selection.gaps)
        return *of, self._by_group, self._turned, self._group_of(view)

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        from decodescope.analyzer.reports.gap_list import chosen_gaps, longest_first
        from decodescope.tui.model.describe import gap_choice

        window, choice = view.window, gap_choice(view.selection)
        words = filter_words(view.selection.gaps, view.selection.within)
        if window is None:
            return Empty(TITLE, view.waiting)
        analysis = window.analysis
        if not len(analysis.gaps):
            return Empty(TITLE, no_gaps(window))
        chosen = chosen_gaps(analysis, analysis.ranges, choice)
        if not len(chosen):
            return Empty(TITLE, f"no gap here: {words}; esc shows more")
        self._title = f"{TITLE} {count(len(chosen))}{f': {words}' if words else ''}"
        if not self._by_group:
            self._note = ""
            return GapRows(window, longest_first(analysis, chosen))
        grouped = self._grouped = self._groups_of(window, choice, chosen)
        self._note = f"{len(grouped.groups):,} groups"
        picked = self._group_of(view)
        opened = [
            number
            for number, group in enumerate(grouped.groups)
            if number == picked or self.is_open(_pick(group))
        ]
        return GapGroupRows(window, grouped, opened, self._brush.glyphs)

    def pick_of(self, key: Hashable) -> Pick | None:
        if isinstance(key, GapGroupPick):
            return key
        return GapPick(key[1]) if isinstance(key, tuple) else None

    def key_of(self, pick: Pick | None) -> Hashable:
        rows = self._shown.gaps if isinstance(self._shown, GapGroupRows) else self._shown
        if isinstance(pick, GapPick) and isinstance(rows, GapRows):
            return rows.key_of(pick.row)
        return pick if isinstance(pick, GapGroupPick) else None

    def opened(self, key: Hashable) -> None:
        self.post_message(Choose(self.pick_of(key)))
        if isinstance(key, GapGroupPick):
            self.action_fold()
        else:
            self.post_message(Turn("timeline"))

    def action_group(self) -> None:
        self._by_group = not self._by_group
        self.show(*self._seen)

    def _groups_of(self, window: Window, choice: "GapChoice", chosen: Int64s) -> Grouped:
        from decodescope.analyzer.reports.gap_list import grouped_gaps

        grouped = self._grouped
        if grouped is not None and grouped.window is window and grouped.choice == choice:
            return grouped
        every = len(chosen) == len(window.analysis.gaps)
        groups, gap_rows = (
            window.analysis.gap_groups if every else grouped_gaps(window.analysis, chosen)
        )
        bounds = np.cumsum([0, *(group.count for group in groups)])
        return Grouped(window, choice, groups, gap_rows, bounds)

    def _group_of(self, view: View) -> int | None:
        """The group of the gap that is selected, None without one."""
        grouped, pick = self._grouped, view.selection.pick
        if grouped is None or grouped.window is not view.window or not isinstance(pick, GapPick):
            return None
        place = np.flatnonzero(grouped.gap_rows == pick.row)
        return int(grouped.bounds.searchsorted(place[0], "right")) - 1 if len(place) else None


def _interruption_words(interruptions: Iterable[Interruption]) -> str:
    causes = (each.cause.replace("_", " ") for each in interruptions)
    return ", ".join(f"interruption: {cause}" for cause in causes)


def _causes(gap: GapReport) -> str:
    """The class of the longest part, and how many parts follow."""
    return f"{gap.gap_class} +{len(gap.parts) - 1}" if len(gap.parts) > 1 else gap.gap_class


def filter_words(chosen: GapFilter, within: str | None) -> str:
    """The gaps that a filter leaves, in words; "" for everything."""
    parts = [chosen.gap_class] if chosen.gap_class else []
    if chosen.bucket_ns is not None:
        lower, upper = chosen.bucket_ns
        least = f"{duration(lower)} to " if lower > 0 else "up to "
        parts.append(f"{least}{duration(upper)}")
    if chosen.step is not None:
        parts.append(f"step {chosen.step}")
    if within is not None:
        parts.append(f"in {within}")
    return ", ".join(parts)
