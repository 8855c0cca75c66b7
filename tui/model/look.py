"""The look of the timeline: its time, its track, and the slices that stand out."""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from decodescope.analyzer.attribution.range_tree import path_part
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap
from decodescope.analyzer.trace import Bools, Int64s, Intervals
from decodescope.analyzer.tracks.build import Tracks
from decodescope.analyzer.tracks.finding import following, inside_range, next_gap, nth_largest_gap
from decodescope.analyzer.tracks.track import Track, TrackKind
from decodescope.analyzer.tracks.viewport import TimeMap, Viewport, as_it_is, compressed, fitting
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


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A part of the time of `tracks`. The viewport is in drawn time, everything else in time.

    `cursor` is the place of the track that the keys move in, `columns` is the width. `marks` counts
    the slices of each track that stand out (`Track.count_marks`), None if nothing does.
    """

    tracks: Tracks
    time: TimeMap
    viewport: Viewport
    cursor: int
    columns: int
    marks: tuple[Int64s, ...] | None = None

    @property
    def track(self) -> Track:
        return self.tracks.tracks[self.cursor]

    @property
    def world(self) -> tuple[int, int]:
        """All drawn time: (start, end)."""
        return int(self.time.drawn_ns[0]), int(self.time.drawn_ns[-1])

    @property
    def shown(self) -> tuple[int, int]:
        """The time that is visible: (start, end)."""
        view = self.viewport
        return self.time.time_one(view.start_ns), self.time.time_one(view.end_ns)

    @property
    def zoom(self) -> float:
        """How many times the visible time fits into all time, as drawn."""
        return (self.world[1] - self.world[0]) / max(self.viewport.span_ns, 1)

    @property
    def edges_ns(self) -> Int64s:
        return self.time.time(self.viewport.edges_ns(self.columns))

    def column_of(self, at_ns: int) -> int:
        """The column of a time; below 0 or at least `columns` outside."""
        return self.viewport.column_of(self.time.draw_one(at_ns), self.columns)

    def time_of(self, column: int) -> tuple[int, int]:
        """The time of a column: (start, end)."""
        start_ns, end_ns = self.edges_ns[column : column + 2].tolist()
        return start_ns, end_ns

    def to(self, viewport: Viewport) -> Self:
        """Another viewport, kept inside of all time."""
        viewport = viewport.within(*self.world, self.columns)
        return self if viewport == self.viewport else replace(self, viewport=viewport)

    def fill(self, start_ns: int, end_ns: int, margin: bool = False) -> Self:
        """This time fills the screen, exactly or with a margin."""
        start_ns, end_ns = self.time.draw(np.array((start_ns, end_ns))).tolist()
        exact = Viewport(start_ns, max(end_ns - start_ns, 1))
        return self.to(fitting(start_ns, end_ns) if margin else exact)

    def show(self, start_ns: int, end_ns: int, readable: bool = True) -> Self:
        """Move so that this time is visible; if `readable`, zoom in on what is too short to see."""
        start_ns, end_ns = self.time.draw(np.array((start_ns, end_ns))).tolist()
        length_ns = max(end_ns - start_ns, 1)
        viewport = self.viewport.showing(start_ns, end_ns)
        if readable and length_ns * self.columns < _VISIBLE_COLUMNS * viewport.span_ns:
            span_ns = length_ns * self.columns // _VISIBLE_COLUMNS
            viewport = Viewport(start_ns - (span_ns - length_ns) // 2, max(span_ns, 1))
        return self.to(viewport)

    def zoomed(self, factor: Fraction, column: int | None) -> Self:
        """Zoom around a column, None around the middle."""
        view = self.viewport
        place = self.columns if column is None else 2 * column + 1
        at_ns = view.start_ns + view.span_ns * place // (2 * max(self.columns, 1))
        return self.to(view.zoomed(factor, at_ns))

    def centred(self, column: int) -> Self:
        """The time at this column of the minimap is in the middle."""
        start_ns, end_ns = self.world
        at_ns = start_ns + (end_ns - start_ns) * (2 * column + 1) // (2 * max(self.columns, 1))
        span_ns = self.viewport.span_ns
        return self.to(Viewport(at_ns - span_ns // 2, span_ns))

    def with_compression(self, on: bool) -> Self:
        """Long gaps cut short or not, with the same time in the middle."""
        busy = Intervals(self.tracks.busy.start_ns, self.tracks.busy.end_ns)
        world = self.tracks.world
        time = compressed(busy, world) if on else as_it_is(world)
        start_ns, end_ns = time.draw(np.array(self.shown)).tolist()
        look = replace(self, time=time)
        return look.to(Viewport(start_ns, max(end_ns - start_ns, 1)))

    @property
    def middle_ns(self) -> int:
        return self.time.time_one(self.viewport.start_ns + self.viewport.span_ns // 2)

    def step(self) -> int | None:
        """The index of the step in the middle, None outside of every step. Of steps of several
        ranks there, it is the one that every page shows, if that is one of them."""
        steps, home = self.tracks.steps, self.tracks.home_step
        if home is not None and steps.start_ns[home] <= self.middle_ns < steps.end_ns[home]:
            return int(self.tracks.step[home])
        place = int(steps.start_ns.searchsorted(self.middle_ns, side="right")) - 1
        if place < 0 or self.middle_ns >= steps.end_ns[place]:
            return None
        return int(self.tracks.step[place])

    def marked(self, selection: Selection, labels: Bools | None) -> Self:
        """Mark the slices that stand out: those inside the selection's range that also belong to
        its kernel, else to `labels` (what was searched for). A range that was found is not one."""
        tracks, pick, within = self.tracks, selection.pick, selection.within
        if isinstance(pick, RangePick) and labels is None:
            within = pick.path
        elif isinstance(pick, KernelPick):
            labels = np.array([name == pick.name for name in tracks.names], dtype=np.bool_)
        if within is None and labels is None:
            return replace(self, marks=None)
        chosen = [np.ones(len(track.slices), dtype=np.bool_) for track in tracks.tracks]
        if within is not None:
            chosen = inside_range(tracks, within)
        if labels is not None:
            named = (track.named(labels) for track in tracks.tracks)
            chosen = [inside & name for inside, name in zip(chosen, named, strict=True)]
        marks = map(Track.count_marks, tracks.tracks, chosen)
        return replace(self, marks=tuple(marks))

    def to_marked(self) -> Self:
        """If nothing that stands out in a stream is visible, the first such slice from here on."""
        if self.marks is None:
            return self
        shown = np.array(self.shown)
        candidates: list[tuple[bool, int, int]] = []
        for track, marks in zip(self.tracks.tracks, self.marks, strict=True):
            if track.key.kind != "stream":
                continue
            if track.marked(marks, track.columns(shown))[0]:
                return self
            parts = np.flatnonzero(np.diff(marks))
            later = parts[track.start_ns[parts] >= shown[0]]
            for part in (*later[:1].tolist(), *parts[:1].tolist()):
                start_ns = int(track.start_ns[part])
                candidates.append((start_ns < shown[0], start_ns, int(track.end_ns[part])))
        if not candidates:
            return self
        _, start_ns, end_ns = min(candidates)
        return self.show(start_ns, end_ns, readable=False)

    def place_of(self, pick: Pick | None) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
        """The time (start, end) of a pick, and its tracks, a stream before its part."""
        analysis = self.tracks.analysis
        match pick:
            case SpanPick(start_ns, end_ns):
                return (start_ns, end_ns), ()
            case OpPick(row):
                kinds: tuple[TrackKind, ...] = ("stream", "part")
                events: Intervals = analysis.trace.ops
            case GapPick(row):
                kinds, events = ("gap",), analysis.gaps
            case _:
                return None, ()
        holding = tuple(
            place
            for place, track in enumerate(self.tracks.tracks)
            if track.key.kind in kinds and _holds(track, row)
        )
        return (int(events.start_ns[row]), int(events.end_ns[row])), holding

    def pick_of(self, place: int, number: int) -> Pick:
        track = self.tracks.tracks[place]
        row, label = int(track.slices.row[number]), int(track.slices.label[number])
        start_ns, end_ns = int(track.slices.start_ns[number]), int(track.slices.end_ns[number])
        pick: Pick | None = None
        match track.key.kind:
            case "stream" | "part" | "wait":
                pick = OpPick(row)
            case "overlap" if track.key.level:
                pick = OpPick(row)
            case "gap":
                pick = GapPick(row)
            case "interruption":
                pick = _interruption_pick(self.tracks, row)
            case "range" if (path := self.tracks.path(label)) is not None:
                pick = RangePick(path)
            case "host_range" if (path := _host_path(self.tracks, track, start_ns)) is not None:
                pick = RangePick(path)
        return pick or SpanPick(start_ns, end_ns)

    @property
    def device(self) -> int | None:
        """The device of the cursor's track, None for a host's."""
        key = self.track.key
        on_device = ("stream", "part", "gap", "interruption", "range")
        return key.device if key.kind in on_device else None

    def neighbour_slice(self, at_ns: int, backwards: bool) -> int | None:
        """The slice of the cursor's track after `at_ns`, or before it; parts of a gap are one."""
        number, rows = following(self.track, at_ns, backwards), self.track.slices.row
        if number is None or self.track.key.kind != "gap":
            return number
        if backwards:
            return int(rows.searchsorted(rows[number]))
        current = following(self.track, at_ns + 1, backwards=True)
        if current is not None:
            number = max(number, int(rows.searchsorted(rows[current], side="right")))
        return number if number < len(rows) else None

    def next_gap(self, after_ns: int) -> int | None:
        """The next gap of the cursor's device that is at least a column wide."""
        least_ns = self.viewport.span_ns // max(self.columns, 1)
        return next_gap(self.tracks.analysis.gaps, after_ns, least_ns, self.device)

    def largest_gap(self, after: int | None) -> int | None:
        """The longest gap of the cursor's device; after gap `after` the next in length."""
        return nth_largest_gap(self.tracks.analysis.gaps, after, self.device)

    def matching(self, pattern: re.Pattern[str]) -> Bools:
        """Which names match, those of ops also by short name: one for each of `Tracks.names`."""
        names, trace = self.tracks.names, self.tracks.analysis.trace
        ops = {trace.names[name] for name in np.unique(trace.ops.name).tolist()}
        matching = {name for name in ops if pattern.search(short_name(name))}
        return np.array([name in matching or pattern.search(name) is not None for name in names])


def look_at(tracks: Tracks, columns: int) -> Look:
    """The median step, else all ops, else everything; the cursor is in the first stream."""
    kinds = [track.key.kind for track in tracks.tracks]
    cursor = kinds.index("stream") if "stream" in kinds else 0
    look = Look(tracks, as_it_is(tracks.world), Viewport(*tracks.world), cursor, columns)
    return look.fill(*tracks.home)


def look_again(look: Look, tracks: Tracks, columns: int) -> Look:
    """The same look at a later window or another step: its step, if that was visible or the moved
    look would miss it, else as far from it and as far zoomed; with gaps cut short if they were."""
    place = tracks.find(look.track.key) if look.tracks.tracks else None
    fresh = look_at(tracks, columns)
    if place is not None:
        fresh = replace(fresh, cursor=place)
    start_ns, end_ns = look.shown
    if (start_ns, end_ns) != look.tracks.home:
        later_ns = tracks.home[0] - look.tracks.home[0]
        moved = Viewport(start_ns + later_ns, max(end_ns - start_ns, 1))
        later = fresh.to(moved)
        if later.shown[0] < tracks.home[1] and later.shown[1] > tracks.home[0]:
            fresh = later
    return fresh.with_compression(True) if look.time.limit_ns else fresh


def _holds(track: Track, row: int) -> bool:
    """Whether a slice of `track` is about `row`; its rows are sorted."""
    number = int(track.slices.row.searchsorted(row))
    return row in track.slices.row[number : number + 1]


def _interruption_pick(tracks: Tracks, row: int) -> Pick:
    analysis = tracks.analysis
    interruption = analysis.interruptions[row]
    gaps = interruptions_by_gap(analysis.gaps, [interruption])
    if gaps:
        return GapPick(max(gaps, key=lambda gap: int(analysis.gaps.length_ns[gap])))
    return OpPick(interruption.op)


def _host_path(tracks: Tracks, track: Track, at_ns: int) -> str | None:
    """The path of the thread's ranges down to `track`, None if it launched nothing."""
    parts = []
    for outer in tracks.tracks:
        if outer.key[:3] == track.key[:3] and outer.key.level <= track.key.level:
            number = outer.at(at_ns, at_ns + 1)
            if number is not None:
                parts.append(path_part(tracks.names[int(outer.slices.label[number])]))
    path = "/".join(part for part in parts if part is not None)
    return path if path in tracks.analysis.ranges.paths else None
