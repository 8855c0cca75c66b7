"""The gaps in groups, the largest first, or each by itself, the longest first."""

import re
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from decodescope.analyzer.names.fitted_names import ShortNames, cut_middle, cut_start
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.reports.device_report import gap_report
from decodescope.analyzer.reports.gap_list import (
    chosen_gaps,
    gap_classes,
    grouped_gaps,
    longest_first,
)
from decodescope.analyzer.schema.report import GAP_CLASSES, GapGroup, GapReport
from decodescope.analyzer.tables.columns import Mark, Table
from decodescope.analyzer.tables.gaps_table import gap_columns, gap_group_columns, host_words
from decodescope.analyzer.tables.kernels_table import short_names
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
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.gap_classes import no_gaps
from decodescope.tui.panels.messages import Choose
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.panels.table_rows import (
    Cell,
    ColumnRows,
    Figures,
    Rows,
    Texts,
    drawing_of,
    ranked,
)
from decodescope.tui.panels.tree import Branch, TreePanel, TreeRows
from decodescope.tui.style.palette import Inks

TITLE = "Gaps"
_KEPT_REPORTS = 2_048
Key = tuple[int, int]


class GapRows(ColumnRows):
    """The gaps in these rows of a window's analysis; a key is the window's identity and such a
    row. What the host did is computed for one gap at a time."""

    def __init__(self, window: Window, gap_rows: Int64s) -> None:
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
        first = next(column.least for column in self.columns if column.flexible)
        self._drawings = [(drawing_of(column), column.least - first) for column in self.columns[1:]]

    def key(self, row: int) -> Key:
        return self._window, int(self.gaps[row])

    def place(self, key: Hashable) -> int | None:
        window, row = key if isinstance(key, tuple) else (0, -1)
        if window != self._window or not 0 <= row < len(self._places):
            return None
        place = int(self._places[row])
        return place if place >= 0 else None

    def key_of(self, row: int) -> Key:
        return self._window, row

    def report(self, row: int) -> GapReport:
        return self._report(int(self.gaps[row]))

    def cells(self, row: int, brush: Brush, room: int) -> Sequence[Cell]:
        gap = self.report(row)
        mark = f"{GAP_LETTERS.get(gap.gap_class, '?')} " if brush.inks.letters else ""
        causes = self.causes(row, brush.inks)
        drawn = (draw(gap, brush, max(room + more, 1)) for draw, more in self._drawings)
        return [replace(causes, text=mark + causes.text), *drawn]

    def causes(self, row: int, inks: Inks) -> Cell:
        gap = self.report(row)
        if int(self.gaps[row]) in self._interruptions:
            return Cell(f"interrupted, {_causes(gap)}", inks.warn)
        return Cell(_causes(gap), inks.gap(gap.gap_class))


class GapGroupRows(Rows):
    """Groups of gaps, and behind all of them the gaps `below` those that are open, by the place of
    the group. The key of a group is its pick, that of a gap as in `GapRows`."""

    def __init__(
        self, window: Window, groups: Sequence[GapGroup], below: Mapping[int, Int64s]
    ) -> None:
        around = (name for group in groups for name in (group.prev, group.next))
        names = short_names(window.report.kernels, around)
        columns = gap_group_columns(sum(group.total_ns for group in groups), names)
        table = Table("groups", columns, groups, mark=lambda group: Mark("gap", group.gap_class))
        branches = [Branch(_pick(group), is_open=row in below) for row, group in enumerate(groups)]
        self._groups = TreeRows(table, branches)
        self._several = len(window.analysis.busy) > 1
        self.columns = self._groups.columns
        self.gaps = GapRows(window, np.concatenate([np.arange(0), *below.values()]))
        self._above = np.repeat(list(below), list(map(len, below.values()))).astype(np.int64)

    def __len__(self) -> int:
        return len(self._groups) + len(self.gaps)

    def key(self, row: int) -> Hashable:
        return self.branch(row).key

    def place(self, key: Hashable) -> int | None:
        if isinstance(key, GapGroupPick):
            return self._groups.place(key)
        gap = self.gaps.place(key)
        return None if gap is None else len(self._groups) + gap

    def branch(self, row: int) -> Branch:
        gap = row - len(self._groups)
        if gap < 0:
            return self._groups.branch(row)
        return Branch(self.gaps.key(gap), self._groups.key(int(self._above[gap])), 1)

    def cells(self, row: int, brush: Brush, room: int) -> Sequence[Cell]:
        gap, inks = row - len(self._groups), brush.inks
        if gap < 0:
            return self._groups.cells(row, brush, room)
        report, causes = self.gaps.report(gap), self.gaps.causes(gap, inks)
        where = report.range or host_words(report) or ""
        step = "" if report.step is None else f"step {report.step} "
        at = f"{step}at {duration(report.at_ns)}"
        at += f", {device_words(report.device)}" if self._several else ""
        texts = {
            "gap_class": replace(causes, text=self.branch(row).lead + causes.text),
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
            order.append(np.array([group]))
            if self._groups.branch(group).is_open:
                below = len(self._groups) + np.flatnonzero(self._above == group)
                order.append(below if down else below[::-1])
        return array("q", np.concatenate(order).tobytes())

    def matching(self, pattern: re.Pattern[str]) -> set[int]:
        gaps = {len(self._groups) + gap for gap in self.gaps.matching(pattern)}
        return self._groups.matching(pattern) | gaps


def _pick(group: GapGroup) -> GapGroupPick:
    return GapGroupPick(group.gap_class, group.prev, group.next)


class GapListPanel(TreePanel):
    """The gaps that the chosen class, bucket, step and range leave, in groups or each by itself.
    The group of a gap that is selected is open."""

    NAME = "gap_list"
    COMMANDS = commands_of("rows", "open", "tree", "grouped")
    SOURCE = ("window", "waiting", "selection.within", "selection.gaps", "_by_group", "_turned")

    _by_group = True
    # Of the groups that are listed: the window, the rows of all gaps, and where each group begins.
    _grouped: tuple[Window, Int64s, Int64s] | None = None

    def source(self, view: View) -> object:
        return super().source(view), self._group_of(view)

    def rows(self, view: View) -> Rows | Empty:
        from decodescope.tui.model.describe import gap_choice

        window, within = view.window, view.selection.within
        if window is None:
            return Empty(TITLE, view.waiting)
        step_words = "" if window.step is None else window.step_words
        words = filter_words(view.selection.gaps, within, step_words)
        analysis = window.analysis
        if not len(analysis.gaps):
            return Empty(TITLE, no_gaps(window))
        choice = gap_choice(view.selection, window.step)
        chosen = chosen_gaps(analysis, analysis.ranges, choice)
        if not len(chosen):
            return Empty(TITLE, f"no gap here: {words}; esc shows more")
        self._title = f"{TITLE} {count(len(chosen))}{f': {words}' if words else ''}"
        if not self._by_group:
            self._note = ""
            return GapRows(window, longest_first(analysis, chosen))
        every = len(chosen) == len(analysis.gaps)
        groups, gap_rows = analysis.gap_groups if every else grouped_gaps(analysis, chosen)
        self._note = f"{len(groups):,} groups"
        bounds = np.cumsum([0, *(group.count for group in groups)])
        self._grouped = (window, gap_rows, bounds)
        picked = self._group_of(view)
        below = {
            row: gap_rows[slice(*bounds[row : row + 2])]
            for row, group in enumerate(groups)
            if row == picked or self.is_open(_pick(group))
        }
        return GapGroupRows(window, groups, below)

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
        is_group = isinstance(key, GapGroupPick)
        self.post_message(Choose(self.pick_of(key), page="" if is_group else "timeline"))
        if is_group:
            self.action_fold()

    def action_group(self) -> None:
        self._by_group = not self._by_group
        self.show(self._seen)

    def _group_of(self, view: View) -> int | None:
        """The group of the gap that is selected, None without one."""
        pick = view.selection.pick
        if self._grouped is None or not isinstance(pick, GapPick):
            return None
        window, gap_rows, bounds = self._grouped
        place = np.flatnonzero(gap_rows == pick.row)
        here = window is view.window and len(place)
        return int(bounds.searchsorted(place[0], "right")) - 1 if here else None


def _interruption_words(interruptions: Iterable[Interruption]) -> str:
    causes = (each.cause.replace("_", " ") for each in interruptions)
    return ", ".join(f"interrupted, interruption: {cause}" for cause in causes)


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
