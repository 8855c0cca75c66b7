"""Decode steps drawn along time: ops of each stream above, the gaps of the device below.

An op or gap at least `SINGLE_PX` wide is a shape of its own with its name. Shorter ones are merged
into columns of `COLUMN_PX`, filled as high as their share of the column's time, so that thousands
of ops stay a small picture in which nothing is hidden. While an op before it in its row still runs,
an op is a low shape at the bottom of the row, and it does not count for the columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, time_ticks
from decodescope.analyzer.names.fitted_names import cut_middle, short_kernel
from decodescope.analyzer.names.rules import FAMILIES
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.tracks.build import StepTracks
from decodescope.analyzer.tracks.track import Slices, Track, track_of
from decodescope.analyzer.tracks.viewport import Viewport

SINGLE_PX = 1.5
COLUMN_PX = 2.0
MAX_STREAMS = 6
_LEFT, _RIGHT = 150.0, 8.0
_PLOT = CHART_WIDTH - _LEFT - _RIGHT
_OPS_PX, _GAPS_PX, _ROW_SPACE, _TRACK_SPACE, _AXIS_PX = 26.0, 14.0, 3.0, 16.0, 22.0
_EARLY_PX = 7.0
_TIP_CELLS = 90
_LABEL_PX, _LETTER_PX, _TICK_TEXT_PX, _PATTERN_PX = 48.0, 6.9, 50.0, 10.0


def steps_svg(steps: Sequence[tuple[str, StepTracks]]) -> Markup:
    """One step of each variant, all on the scale of the longest."""
    lengths = ", ".join(f"{name}: {duration(step.length_ns)}" for name, step in steps)
    longest_ns = max(step.length_ns for _, step in steps)
    return _drawn(steps, longest_ns, "One step of each variant on one time scale", lengths)


def step_svg(name: str, step: StepTracks) -> Markup:
    """One step across the whole width."""
    about = (
        f"{duration(step.length_ns)}, {len(step.ops)} ops on {len(step.streams)} streams, "
        f"{len(np.unique(step.gaps.slices.row))} gaps"
    )
    return _drawn([("", step)], step.length_ns, f"One step of {name} at its own scale", about)


def _drawn(
    steps: Sequence[tuple[str, StepTracks]], until_ns: int, title: str, about: str
) -> Markup:
    tracks = [(name, step, _tracks(step)) for name, step in steps]
    heights = [
        sum(_height(track) + _ROW_SPACE for track in rows) + _TRACK_SPACE for _, _, rows in tracks
    ]
    plot = _Plot(Drawing(_AXIS_PX + sum(heights), title, about), until_ns)
    plot.axis(_AXIS_PX + sum(heights) - _TRACK_SPACE)
    y = _AXIS_PX
    for (name, step, rows), height in zip(tracks, heights, strict=True):
        plot.step(name, step, rows, y)
        y += height
    return plot.drawing.markup()


def _height(track: Track) -> float:
    return _GAPS_PX if track.key.kind == "gap" else _OPS_PX


def _tracks(step: StepTracks) -> list[Track]:
    """The streams with most ops, one track for all the others, and the gaps."""
    by_ops = sorted(step.streams, key=lambda track: -len(track.slices))
    busiest, others = by_ops[:MAX_STREAMS], by_ops[MAX_STREAMS:]
    busiest.sort(key=lambda track: track.key.number)
    tracks = [replace(track, title=f"stream {track.key.number}") for track in busiest]
    if others:
        ops = Slices.concatenate([track.slices for track in others])
        ops = ops.take(np.argsort(ops.row))
        tracks.append(track_of(others[0].key, f"{len(others)} more streams", ops))
    return [*tracks, step.gaps]


@dataclass(frozen=True, slots=True)
class _Plot:
    """A drawing whose plot shows the time from 0 to `until_ns`, the end of the longest step."""

    drawing: Drawing
    until_ns: int

    @property
    def px_per_ns(self) -> float:
        return _PLOT / max(self.until_ns, 1)

    def x(self, at_ns: float) -> float:
        return _LEFT + at_ns * self.px_per_ns

    def axis(self, bottom: float) -> None:
        for at, text in time_ticks(self.until_ns):
            x = self.x(at)
            self.drawing.line(x, _AXIS_PX - 6, x, bottom, "grid")
            if x < _LEFT + _PLOT - _TICK_TEXT_PX:
                self.drawing.text(x + 3, 12, text, "dim")

    def step(self, name: str, step: StepTracks, tracks: Sequence[Track], y: float) -> None:
        """All tracks of one step from `y` down."""
        if name:
            self.drawing.text(0, y + 12, cut_middle(name, 20), "strong")
            self.drawing.text(0, y + 27, duration(step.length_ns), "dim")
        for track in tracks:
            height = _height(track)
            if len(tracks) > 2 or not name:
                self.drawing.text(_LEFT - 8, y + height / 2 + 4, track.title, "dim", "end")
            self.drawing.rect(_LEFT, y, self.x(step.length_ns) - _LEFT, height, "track")
            self._slices(track, step.names, y)
            y += height + _ROW_SPACE

    def _slices(self, track: Track, names: Sequence[str], y: float) -> None:
        are_ops, height = track.key.kind == "stream", _height(track)
        kinds = FAMILIES if are_ops else GAP_CLASSES
        classes = [f"{'f' if are_ops else 'g'}-{kind}" for kind in kinds]
        slices = track.slices
        start_ns, end_ns, alone_ns = slices.start_ns, slices.end_ns, slices.end_ns.copy()
        alone_ns[track.part] = track.start_ns
        single = (end_ns - start_ns) * self.px_per_ns >= SINGLE_PX
        short = Slices(alone_ns, end_ns, slices.label, slices.row, slices.kind).take(~single)
        self._columns(track_of(track.key, track.title, short), classes, y)
        for index in np.flatnonzero(single):
            x, middle, right = (self.x(int(ns[index])) for ns in (start_ns, alone_ns, end_ns))
            kind = int(slices.kind[index])
            shape = classes[kind] if right - x >= _PATTERN_PX else _plain(classes[kind])
            name = names[slices.label[index]] if are_ops else kinds[kind]
            tip = f"{short_kernel(name, _TIP_CELLS)}\n{duration(slices.length_ns[index])}"
            tip += f", at {duration(int(start_ns[index]))}"
            if middle > x:
                early_ns = int(alone_ns[index] - start_ns[index])
                tip += f", for {duration(early_ns)} beside an op before it"
                low = y + height - _EARLY_PX
                self.drawing.rect(x, low, middle - x, _EARLY_PX, f"{shape} early", tip)
            if right > middle:
                self.drawing.rect(middle, y, right - middle, height, shape, tip)
            if are_ops and right - middle >= _LABEL_PX:
                label = short_kernel(name, int((right - middle - 6) / _LETTER_PX))
                self.drawing.text(middle + 3, y + height / 2 + 4, label, "on-op")

    def _columns(self, short: Track, classes: Sequence[str], y: float) -> None:
        """Short slices as columns, the kinds stacked upon each other."""
        columns = int(_PLOT / COLUMN_PX)
        edges_ns = Viewport(0, self.until_ns).edges_ns(columns)
        height = _height(short)
        share = short.inside_ns(edges_ns) / np.maximum(np.diff(edges_ns), 1)[:, np.newaxis]
        foot = np.full(columns, y + height)
        for kind, heights in zip(short.kinds, (share * height).T, strict=True):
            foot = foot - heights
            self.drawing.boxes(
                (
                    (_LEFT + column * COLUMN_PX, foot[column], COLUMN_PX, heights[column])
                    for column in np.flatnonzero(heights >= 0.005)
                ),
                _plain(classes[kind]),
                f"{classes[kind][2:]}: each shorter than {SINGLE_PX:g} px, taken together",
            )


def _plain(shape: str) -> str:
    """The class of the same colour without a pattern: a pattern is invisible on small shapes, and
    each one costs kilobytes in print."""
    return f"s-{shape[2:]}" if shape.startswith("g-") else shape
