"""The look of the timeline: its time, its lane, and the slices that stand out."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from decodescope.analyzer.attribution.range_tree import path_part
from decodescope.analyzer.lanes.build import Lanes
from decodescope.analyzer.lanes.finding import find_labels, following, inside_range
from decodescope.analyzer.lanes.lane import Lane
from decodescope.analyzer.lanes.time_map import TimeMap, as_it_is, compressed
from decodescope.analyzer.lanes.viewport import Viewport, fitting
from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap
from decodescope.analyzer.trace import Bools, Int64s, Intervals
from decodescope.tui.model.picks import (
    GapPick,
    KernelPick,
    OpPick,
    Pick,
    RangePick,
    Selection,
    SpanPick,
)

# A pick that is shorter than this many columns is zoomed to, so that it can be seen.
_VISIBLE_COLUMNS = 3
Slice = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A part of the time of `lanes`. The viewport is in drawn time, everything else in time.

    `cursor` is the place of the lane that the keys move in. `marks` counts the slices of each lane
    that stand out (`Lane.count_marks`), None if nothing does.
    """

    lanes: Lanes
    time: TimeMap
    viewport: Viewport
    cursor: int
    marks: tuple[Int64s, ...] | None = None

    @property
    def lane(self) -> Lane:
        """The lane of the cursor."""
        return self.lanes.lanes[self.cursor]

    @property
    def world(self) -> tuple[int, int]:
        """All drawn time: (start, end)."""
        return int(self.time.drawn_ns[0]), int(self.time.drawn_ns[-1])

    @property
    def shown(self) -> tuple[int, int]:
        """The time that is visible: (start, end)."""
        return (
            self.time.time_one(self.viewport.start_ns),
            self.time.time_one(self.viewport.end_ns),
        )

    @property
    def zoom(self) -> float:
        """How many times the visible time fits into all time, as drawn."""
        return (self.world[1] - self.world[0]) / max(self.viewport.span_ns, 1)

    def edges_ns(self, columns: int) -> Int64s:
        """The times of the edges of the columns."""
        return self.time.time(self.viewport.edges_ns(columns))

    def column_of(self, at_ns: int, columns: int) -> int:
        """The column of a time; below 0 or at least `columns` outside."""
        return self.viewport.column_of(self.time.draw_one(at_ns), columns)

    def time_of(self, column: int, columns: int) -> tuple[int, int]:
        """The time of a column: (start, end)."""
        start_ns, end_ns = self.edges_ns(columns)[column : column + 2].tolist()
        return start_ns, end_ns

    def to(self, viewport: Viewport, columns: int) -> Self:
        """Another viewport, kept inside of all time."""
        viewport = viewport.within(*self.world, columns)
        return self if viewport == self.viewport else replace(self, viewport=viewport)

    def fill(self, start_ns: int, end_ns: int, columns: int) -> Self:
        """Exactly this time fills the screen."""
        start_ns, end_ns = self.time.draw(np.array((start_ns, end_ns))).tolist()
        return self.to(Viewport(start_ns, max(end_ns - start_ns, 1)), columns)

    def fit(self, start_ns: int, end_ns: int, columns: int) -> Self:
        """This time fills the screen, but for a margin."""
        drawn = self.time.draw(np.array((start_ns, end_ns))).tolist()
        return self.to(fitting(*drawn), columns)

    def show(self, start_ns: int, end_ns: int, columns: int, readable: bool = True) -> Self:
        """Move so that this time is visible; if `readable`, zoom in on what is too short to see."""
        start_ns, end_ns = self.time.draw(np.array((start_ns, end_ns))).tolist()
        length_ns = max(end_ns - start_ns, 1)
        viewport = self.viewport.showing(start_ns, end_ns)
        if readable and length_ns * columns < _VISIBLE_COLUMNS * viewport.span_ns:
            span_ns = length_ns * columns // _VISIBLE_COLUMNS
            viewport = Viewport(start_ns - (span_ns - length_ns) // 2, max(span_ns, 1))
        return self.to(viewport, columns)

    def zoomed(self, factor: Fraction, column: int | None, columns: int) -> Self:
        """Zoom around a column, None around the middle."""
        view = self.viewport
        place = columns if column is None else 2 * column + 1
        at_ns = view.start_ns + view.span_ns * place // (2 * max(columns, 1))
        return self.to(view.zoomed(factor, at_ns), columns)

    def panned(self, share: Fraction, columns: int) -> Self:
        """Move by a share of the visible time."""
        return self.to(self.viewport.panned(share), columns)

    def centred(self, column: int, columns: int) -> Self:
        """The time at this column of the minimap is in the middle."""
        start_ns, end_ns = self.world
        at_ns = start_ns + (end_ns - start_ns) * (2 * column + 1) // (2 * max(columns, 1))
        span_ns = self.viewport.span_ns
        return self.to(Viewport(at_ns - span_ns // 2, span_ns), columns)

    def with_compression(self, on: bool, columns: int) -> Self:
        """Long gaps cut short or not, with the same time in the middle."""
        busy = Intervals(self.lanes.busy.start_ns, self.lanes.busy.end_ns)
        world = self.lanes.world
        time = compressed(busy, world) if on else as_it_is(world)
        start_ns, end_ns = time.draw(np.array(self.shown)).tolist()
        look = replace(self, time=time)
        return look.to(Viewport(start_ns, max(end_ns - start_ns, 1)), columns)

    def step(self) -> int | None:
        """The place in `lanes.steps` of the step in the middle, None outside of every step."""
        view, steps = self.viewport, self.lanes.steps
        middle_ns = self.time.time_one(view.start_ns + view.span_ns // 2)
        place = int(steps.start_ns.searchsorted(middle_ns, side="right")) - 1
        return place if place >= 0 and middle_ns < int(steps.end_ns[place]) else None

    def to_step(self, by: int, columns: int) -> Self:
        """The next step, or the one before, fills the screen."""
        steps = self.lanes.steps
        if not len(steps):
            return self
        view = self.viewport
        middle_ns = self.time.time_one(view.start_ns + view.span_ns // 2)
        before = int(steps.start_ns.searchsorted(middle_ns, side="right")) - 1
        place = before + by + (by < 0 and self.step() is None)
        place = max(min(place, len(steps) - 1), 0)
        return self.fill(int(steps.start_ns[place]), int(steps.end_ns[place]), columns)

    def marked(self, selection: Selection, labels: Bools | None) -> Self:
        """Mark the slices that stand out: those inside the selection's range that also belong to
        its kernel, else to `labels` (what was searched for)."""
        lanes, chosen = self.lanes, None
        within = selection.within
        if isinstance(selection.pick, RangePick):
            within = selection.pick.path
        if within is not None:
            chosen = inside_range(lanes, within)
        if isinstance(selection.pick, KernelPick):
            labels = np.array([name == selection.pick.name for name in lanes.names], dtype=np.bool_)
        if labels is not None:
            named = [lane.named(labels) for lane in lanes.lanes]
            chosen = (
                named if chosen is None else [a & b for a, b in zip(chosen, named, strict=True)]
            )
        if chosen is None:
            return replace(self, marks=None)
        marks = tuple(
            lane.count_marks(chosen_slices)
            for lane, chosen_slices in zip(lanes.lanes, chosen, strict=True)
        )
        return replace(self, marks=marks)

    def to_marked(self, columns: int) -> Self:
        """If nothing that stands out in a stream is visible, the first such slice from here on."""
        if self.marks is None:
            return self
        shown = np.array(self.shown)
        candidates: list[tuple[bool, int, int]] = []
        for lane, marks in zip(self.lanes.lanes, self.marks, strict=True):
            if lane.key.kind != "stream":
                continue
            if lane.marked(marks, lane.columns(shown))[0]:
                return self
            parts = np.flatnonzero(np.diff(marks))
            later = parts[lane.start_ns[parts] >= shown[0]]
            for part in (*later[:1].tolist(), *parts[:1].tolist()):
                start_ns = int(lane.start_ns[part])
                candidates.append((start_ns < shown[0], start_ns, int(lane.end_ns[part])))
        if not candidates:
            return self
        _, start_ns, end_ns = min(candidates)
        return self.show(start_ns, end_ns, columns, readable=False)


def look_at(lanes: Lanes, columns: int) -> Look:
    """The first look: the last step, else all ops, else everything; the cursor is in the first
    stream."""
    kinds = [lane.key.kind for lane in lanes.lanes]
    cursor = kinds.index("stream") if "stream" in kinds else 0
    look = Look(lanes, as_it_is(lanes.world), Viewport(*lanes.world), cursor)
    return look.fill(*lanes.home, columns)


def look_again(look: Look, lanes: Lanes, columns: int) -> Look:
    """The same look at the lanes of a later window: its last step if that is what was visible, else
    as far from it and as far zoomed; with gaps cut short if they were."""
    place = lanes.find(look.lane.key) if look.lanes.lanes else None
    fresh = look_at(lanes, columns)
    if place is not None:
        fresh = replace(fresh, cursor=place)
    start_ns, end_ns = look.shown
    if (start_ns, end_ns) != look.lanes.home:
        later_ns = lanes.home[0] - look.lanes.home[0]
        moved = Viewport(start_ns + later_ns, max(end_ns - start_ns, 1))
        fresh = fresh.to(moved, columns)
    return fresh.with_compression(True, columns) if look.time.limit_ns else fresh


def device_of_last_step(lanes: Lanes) -> int:
    """The device of the last step; without steps the busiest one. Something must have run."""
    busy = lanes.analysis.busy
    if len(lanes.step):
        return int(lanes.analysis.steps.device[lanes.step[-1]])
    return max(busy, key=lambda device: busy[device].busy_ns)


def last_step_of(lanes: Lanes, most: int) -> Lanes:
    """The time of the last step and at most `most` lanes of its device: its gaps, its stream with
    most ops, its overlap, its other streams."""
    device = device_of_last_step(lanes)
    kinds = ("stream", "overlap", "gap")
    device_lanes = [
        lane for lane in lanes.lanes if lane.key.kind in kinds and lane.key.device == device
    ]
    order = {"gap": 0, "stream": 3, "overlap": 2}
    busiest = max(
        (lane for lane in device_lanes if lane.key.kind == "stream"),
        default=None,
        key=lambda lane: len(lane.slices),
    )
    ranked = sorted(device_lanes, key=lambda lane: 1 if lane is busiest else order[lane.key.kind])
    kept = {lane.key for lane in ranked[:most]}
    chosen = tuple(lane for lane in device_lanes if lane.key in kept)
    return replace(lanes, lanes=chosen, world=lanes.home)


def overlap_share(lanes: Lanes) -> float:
    """The share of the last step in which ops of its device overlapped, 0 if that does not
    matter."""
    last_step_lanes = last_step_of(lanes, len(lanes.lanes)).lanes
    home = np.array(lanes.home)
    return sum(
        float(lane.columns(home).busy[0]) for lane in last_step_lanes if lane.key.kind == "overlap"
    )


def time_of_pick(lanes: Lanes, pick: Pick | None) -> tuple[int, int] | None:
    """The time of a pick that has one: (start, end)."""
    analysis = lanes.analysis
    match pick:
        case OpPick(row):
            events: Intervals = analysis.trace.ops
        case GapPick(row):
            events = analysis.gaps
        case SpanPick(start_ns, end_ns):
            return start_ns, end_ns
        case _:
            return None
    return int(events.start_ns[row]), int(events.end_ns[row])


def slice_of_pick(lanes: Lanes, pick: Pick | None) -> Slice | None:
    """The lane's place and the slice of an op or of the first part of a gap."""
    match pick:
        case OpPick(row):
            kind = "stream"
        case GapPick(row):
            kind = "gap"
        case _:
            return None
    for place, lane in enumerate(lanes.lanes):
        if lane.key.kind == kind:
            number = int(lane.slices.row.searchsorted(row))
            if number < len(lane.slices) and int(lane.slices.row[number]) == row:
                return place, number
    return None


def pick_of_slice(lanes: Lanes, place: int, number: int) -> Pick:
    """The pick of a slice of a lane."""
    lane = lanes.lanes[place]
    row = int(lane.slices.row[number])
    if lane.key.kind in ("stream", "wait"):
        return OpPick(row)
    if lane.key.kind == "gap":
        return GapPick(row)
    if lane.key.kind == "interruption" and (pick := _interruption_pick(lanes, row)) is not None:
        return pick
    path = None
    if lane.key.kind == "range":
        path = lanes.path(int(lane.slices.label[number]))
    elif lane.key.kind == "host_range":
        path = _host_path(lanes, lane, int(lane.slices.start_ns[number]))
    if path is not None:
        return RangePick(path)
    return SpanPick(int(lane.slices.start_ns[number]), int(lane.slices.end_ns[number]))


def _interruption_pick(lanes: Lanes, row: int) -> Pick | None:
    """The gap or the long op of an interruption; None for one that is in neither."""
    analysis = lanes.analysis
    interruption = analysis.interruptions[row]
    gaps = interruptions_by_gap(analysis.gaps, [interruption])
    if gaps:
        return GapPick(max(gaps, key=lambda gap: int(analysis.gaps.length_ns[gap])))
    return OpPick(interruption.op) if interruption.cause == "long_op" else None


def _host_path(lanes: Lanes, lane: Lane, at_ns: int) -> str | None:
    """The path of the thread's ranges down to `lane`, None if it launched nothing."""
    parts: list[str] = []
    for outer_lane in lanes.lanes:
        if outer_lane.key[:3] == lane.key[:3] and outer_lane.key.level <= lane.key.level:
            number = outer_lane.at(at_ns, at_ns + 1)
            part = (
                path_part(lanes.names[int(outer_lane.slices.label[number])])
                if number is not None
                else None
            )
            parts += [part] if part is not None else []
    path = "/".join(parts)
    return path if path in lanes.analysis.ranges.paths else None


def neighbour_slice(look: Look, at_ns: int, backwards: bool) -> int | None:
    """The slice of the cursor's lane after the one at `at_ns`, or before it; parts of one gap are
    one."""
    slices = look.lane.slices
    next_slice = following(look.lane, at_ns, backwards)
    if next_slice is not None and backwards and look.lane.key.kind == "gap":
        return int(slices.row.searchsorted(slices.row[next_slice]))
    if next_slice is not None and not backwards and look.lane.key.kind == "gap":
        current = following(look.lane, at_ns + 1, backwards=True)
        gap = slices.row[current] if current is not None else None
        while next_slice < len(slices) and slices.row[next_slice] == gap:
            next_slice += 1
        return next_slice if next_slice < len(slices) else None
    return next_slice


def find_next(
    look: Look, labels: Bools, at: tuple[int, int], backwards: bool
) -> tuple[Slice, int, int] | None:
    """The next slice with one of `labels` after (time, lane): the slice, its number among all
    matches from 1, and their count; None without a match."""
    matches = find_labels(look.lanes, labels)
    match = matches.step(at, backwards)
    if match is None:
        return None
    return (int(matches.lane[match]), int(matches.slice[match])), match + 1, len(matches)
