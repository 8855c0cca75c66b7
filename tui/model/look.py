"""The look of the timeline: its time, its track, and the slices that stand out."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from decodescope.analyzer.attribution.range_tree import path_part
from decodescope.analyzer.timing.interruptions.interruption import interruptions_by_gap
from decodescope.analyzer.trace import Bools, Int64s, Intervals
from decodescope.analyzer.tracks.build import Tracks
from decodescope.analyzer.tracks.finding import find_labels, following, inside_range
from decodescope.analyzer.tracks.track import Track
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
Slice = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A part of the time of `tracks`. The viewport is in drawn time, everything else in time.

    `cursor` is the place of the track that the keys move in. `marks` counts the slices of each
    track that stand out (`Track.count_marks`), None if nothing does.
    """

    tracks: Tracks
    time: TimeMap
    viewport: Viewport
    cursor: int
    marks: tuple[Int64s, ...] | None = None

    @property
    def track(self) -> Track:
        """The track of the cursor."""
        return self.tracks.tracks[self.cursor]

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
        busy = Intervals(self.tracks.busy.start_ns, self.tracks.busy.end_ns)
        world = self.tracks.world
        time = compressed(busy, world) if on else as_it_is(world)
        start_ns, end_ns = time.draw(np.array(self.shown)).tolist()
        look = replace(self, time=time)
        return look.to(Viewport(start_ns, max(end_ns - start_ns, 1)), columns)

    def step(self) -> int | None:
        """The place in `tracks.steps` of the step in the middle, None outside of every step."""
        view, steps = self.viewport, self.tracks.steps
        middle_ns = self.time.time_one(view.start_ns + view.span_ns // 2)
        place = int(steps.start_ns.searchsorted(middle_ns, side="right")) - 1
        return place if place >= 0 and middle_ns < int(steps.end_ns[place]) else None

    def to_step(self, by: int, columns: int) -> Self:
        """The next step, or the one before, fills the screen."""
        steps = self.tracks.steps
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
        tracks, chosen = self.tracks, None
        within = selection.within
        if isinstance(selection.pick, RangePick):
            within = selection.pick.path
        if within is not None:
            chosen = inside_range(tracks, within)
        if isinstance(selection.pick, KernelPick):
            labels = np.array(
                [name == selection.pick.name for name in tracks.names], dtype=np.bool_
            )
        if labels is not None:
            named = [track.named(labels) for track in tracks.tracks]
            chosen = (
                named if chosen is None else [a & b for a, b in zip(chosen, named, strict=True)]
            )
        if chosen is None:
            return replace(self, marks=None)
        marks = tuple(
            track.count_marks(chosen_slices)
            for track, chosen_slices in zip(tracks.tracks, chosen, strict=True)
        )
        return replace(self, marks=marks)

    def to_marked(self, columns: int) -> Self:
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
        return self.show(start_ns, end_ns, columns, readable=False)


def look_at(tracks: Tracks, columns: int) -> Look:
    """The first look: the last step, else all ops, else everything; the cursor is in the first
    stream."""
    kinds = [track.key.kind for track in tracks.tracks]
    cursor = kinds.index("stream") if "stream" in kinds else 0
    look = Look(tracks, as_it_is(tracks.world), Viewport(*tracks.world), cursor)
    return look.fill(*tracks.home, columns)


def look_again(look: Look, tracks: Tracks, columns: int) -> Look:
    """The same look at the tracks of a later window: its last step if that is what was visible,
    else as far from it and as far zoomed; with gaps cut short if they were."""
    place = tracks.find(look.track.key) if look.tracks.tracks else None
    fresh = look_at(tracks, columns)
    if place is not None:
        fresh = replace(fresh, cursor=place)
    start_ns, end_ns = look.shown
    if (start_ns, end_ns) != look.tracks.home:
        later_ns = tracks.home[0] - look.tracks.home[0]
        moved = Viewport(start_ns + later_ns, max(end_ns - start_ns, 1))
        fresh = fresh.to(moved, columns)
    return fresh.with_compression(True, columns) if look.time.limit_ns else fresh


def device_of_last_step(tracks: Tracks) -> int:
    """The device of the last step; without steps the busiest one. Something must have run."""
    busy = tracks.analysis.busy
    if len(tracks.step):
        return int(tracks.analysis.steps.device[tracks.step[-1]])
    return max(busy, key=lambda device: busy[device].busy_ns)


def last_step_of(tracks: Tracks, most: int) -> Tracks:
    """The time of the last step and at most `most` tracks of its device: its gaps, its stream with
    most ops, its overlap, its other streams."""
    device = device_of_last_step(tracks)
    kinds = ("stream", "overlap", "gap")
    device_tracks = [
        track for track in tracks.tracks if track.key.kind in kinds and track.key.device == device
    ]
    order = {"gap": 0, "stream": 3, "overlap": 2}
    busiest = max(
        (track for track in device_tracks if track.key.kind == "stream"),
        default=None,
        key=lambda track: len(track.slices),
    )
    ranked = sorted(
        device_tracks, key=lambda track: 1 if track is busiest else order[track.key.kind]
    )
    kept = {track.key for track in ranked[:most]}
    chosen = tuple(track for track in device_tracks if track.key in kept)
    return replace(tracks, tracks=chosen, world=tracks.home)


def overlap_share(tracks: Tracks) -> float:
    """The share of the last step in which ops of its device overlapped, 0 if that does not
    matter."""
    last_step_tracks = last_step_of(tracks, len(tracks.tracks)).tracks
    home = np.array(tracks.home)
    return sum(
        float(track.columns(home).busy[0])
        for track in last_step_tracks
        if track.key.kind == "overlap"
    )


def time_of_pick(tracks: Tracks, pick: Pick | None) -> tuple[int, int] | None:
    """The time of a pick that has one: (start, end)."""
    analysis = tracks.analysis
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


def slice_of_pick(tracks: Tracks, pick: Pick | None) -> Slice | None:
    """The track's place and the slice of an op or of the first part of a gap."""
    match pick:
        case OpPick(row):
            kind = "stream"
        case GapPick(row):
            kind = "gap"
        case _:
            return None
    for place, track in enumerate(tracks.tracks):
        if track.key.kind == kind:
            number = int(track.slices.row.searchsorted(row))
            if number < len(track.slices) and int(track.slices.row[number]) == row:
                return place, number
    return None


def pick_of_slice(tracks: Tracks, place: int, number: int) -> Pick:
    """The pick of a slice of a track."""
    track = tracks.tracks[place]
    row = int(track.slices.row[number])
    if track.key.kind in ("stream", "wait"):
        return OpPick(row)
    if track.key.kind == "gap":
        return GapPick(row)
    if track.key.kind == "interruption" and (pick := _interruption_pick(tracks, row)) is not None:
        return pick
    path = None
    if track.key.kind == "range":
        path = tracks.path(int(track.slices.label[number]))
    elif track.key.kind == "host_range":
        path = _host_path(tracks, track, int(track.slices.start_ns[number]))
    if path is not None:
        return RangePick(path)
    return SpanPick(int(track.slices.start_ns[number]), int(track.slices.end_ns[number]))


def _interruption_pick(tracks: Tracks, row: int) -> Pick | None:
    """The gap or the long op of an interruption; None for one that is in neither."""
    analysis = tracks.analysis
    interruption = analysis.interruptions[row]
    gaps = interruptions_by_gap(analysis.gaps, [interruption])
    if gaps:
        return GapPick(max(gaps, key=lambda gap: int(analysis.gaps.length_ns[gap])))
    return OpPick(interruption.op) if interruption.cause == "long_op" else None


def _host_path(tracks: Tracks, track: Track, at_ns: int) -> str | None:
    """The path of the thread's ranges down to `track`, None if it launched nothing."""
    parts: list[str] = []
    for outer_track in tracks.tracks:
        if outer_track.key[:3] == track.key[:3] and outer_track.key.level <= track.key.level:
            number = outer_track.at(at_ns, at_ns + 1)
            part = (
                path_part(tracks.names[int(outer_track.slices.label[number])])
                if number is not None
                else None
            )
            parts += [part] if part is not None else []
    path = "/".join(parts)
    return path if path in tracks.analysis.ranges.paths else None


def neighbour_slice(look: Look, at_ns: int, backwards: bool) -> int | None:
    """The slice of the cursor's track after the one at `at_ns`, or before it; parts of one gap are
    one."""
    slices = look.track.slices
    next_slice = following(look.track, at_ns, backwards)
    if next_slice is not None and backwards and look.track.key.kind == "gap":
        return int(slices.row.searchsorted(slices.row[next_slice]))
    if next_slice is not None and not backwards and look.track.key.kind == "gap":
        current = following(look.track, at_ns + 1, backwards=True)
        gap = slices.row[current] if current is not None else None
        while next_slice < len(slices) and slices.row[next_slice] == gap:
            next_slice += 1
        return next_slice if next_slice < len(slices) else None
    return next_slice


def find_next(
    look: Look, labels: Bools, at: tuple[int, int], backwards: bool
) -> tuple[Slice, int, int] | None:
    """The next slice with one of `labels` after (time, track): the slice, its number among all
    matches from 1, and their count; None without a match."""
    matches = find_labels(look.tracks, labels)
    match = matches.step(at, backwards)
    if match is None:
        return None
    return (int(matches.track[match]), int(matches.slice[match])), match + 1, len(matches)
