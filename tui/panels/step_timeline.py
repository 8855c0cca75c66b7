"""The timeline of the step that the answer is about."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from decodescope.analyzer.text.formatting import counted, duration, percent
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet

if TYPE_CHECKING:
    from decodescope.analyzer.tracks.build import Tracks
    from decodescope.analyzer.tracks.track import Track

_AXIS_AND_LEGEND, _STREAM_ROWS, _PART_ROWS = 2, 3, 2
_ORDER = ("gap", "", "overlap", "stream", "range", "part")


class StepTimelinePanel(Panel[tuple[Window, str]]):
    """Tracks of one device during the median step; without steps, during all ops."""

    NAME = "timeline_top"
    PART = "window"
    _drawn: tuple[object, list[Row]] | None = None

    def pick(self, view: View) -> tuple[Window, str] | Empty:
        window = view.window
        if window is None:
            return Empty("Step", view.waiting)
        if not window.tracks.busy.part.size:
            return Empty("Step", "nothing ran in this window")
        return window, view.window_note

    def wanted_rows(self, width: int) -> int | None:
        if isinstance(self._data, Empty):
            # The answer above says why.
            return 0
        rows = {"stream": _STREAM_ROWS, "part": _PART_ROWS, "gap": 1 + self._brush.inks.letters}
        tracks = _home_tracks(self._data[0].tracks).tracks
        return sum(rows.get(track.key.kind, 1) for track in tracks) + _AXIS_AND_LEGEND

    def draw(self, data: tuple[Window, str], width: int, height: int) -> Sheet:
        window, note = data
        key = (window, width, height, self._brush)
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = (key, self._rows(window.tracks, width, height))
        return Sheet(list(self._drawn[1]), _title(window), note)

    def _rows(self, step_tracks: "Tracks", width: int, height: int) -> list[Row]:
        from decodescope.tui.model.look import look_at
        from decodescope.tui.panels.timeline.axis import axis, legend
        from decodescope.tui.panels.timeline.drawing import Canvas, shown_tracks, track_heights

        body = max(height - _AXIS_AND_LEGEND, 1)
        letters = self._brush.inks.letters
        # Letters below the ops and the gaps say more than further tracks.
        tracks = _home_tracks(step_tracks, max(body - 2, 2) if letters else body)
        gutter = min(max(len(track.title) for track in tracks.tracks) + 2, width // 3)
        look = look_at(tracks, max(width - gutter, 1))
        canvas = Canvas(look, self._brush.inks, self._brush.glyphs, gutter)
        places, kinds = zip(*shown_tracks(look, body, letters), strict=True)
        rows_of = zip(places, track_heights(kinds, body, letters), strict=True)
        rows = [*canvas.tracks(list(rows_of), False)[:body], axis(canvas)]
        return [*rows, *legend(canvas, width, 1)][:height]


def _title(window: Window) -> str:
    tracks, analysis = window.tracks, window.analysis
    noun = "operator" if analysis.trace.on_cpu else "GPU op"
    span, count = "All ops", len(analysis.trace.ops)
    length_ns = tracks.home[1] - tracks.home[0]
    if tracks.home_step is not None:
        step = window.report.steps[int(tracks.step[tracks.home_step])]
        span, count = f"Step {step.index}", step.gpu_ops
        length_ns = step.time_ns or length_ns
    title = f"{span}  {duration(length_ns)}, {counted(count, noun)}"
    if len(analysis.busy) > 1:
        label = analysis.trace.device_label(_home_device(tracks))
        title += f", here those of {label if isinstance(label, str) else f'GPU {label}'}"
    home = np.array(tracks.home)
    overlaps = [t for t in _tracks_of_home(tracks) if t.key[::3] == ("overlap", 0)]
    share = sum(float(track.columns(home).busy[0]) for track in overlaps)
    return title + (f", overlapping for {percent(share)} % of it" if share else "")


def _home_device(tracks: "Tracks") -> int:
    """The device of the step; without steps the busiest one. Something must have run."""
    busy = tracks.analysis.busy
    if tracks.home_step is not None:
        return int(tracks.analysis.steps.device[tracks.step[tracks.home_step]])
    return max(busy, key=lambda device: busy[device].busy_ns)


def _home_tracks(tracks: "Tracks", most: int | None = None) -> "Tracks":
    """The time of the step and at most `most` tracks of its device: its gaps, its stream with
    most ops, its overlap, its other streams, its ranges."""
    shown = _tracks_of_home(tracks)
    streams = [track for track in shown if track.key.kind == "stream"]
    busiest = max(streams, default=None, key=lambda track: len(track.slices))

    def rank(track: "Track") -> int:
        return 1 if track is busiest else _ORDER.index(track.key.kind)

    kept = {track.key for track in sorted(shown, key=rank)[:most]}
    ranges = {key for key in kept if key.kind == "range"}
    # One range is that of the whole step.
    kept -= ranges if len(ranges) == 1 else set()
    chosen = tuple(track for track in shown if track.key in kept)
    return replace(tracks, tracks=chosen, world=tracks.home)


def _tracks_of_home(tracks: "Tracks") -> list["Track"]:
    device = _home_device(tracks)
    return [t for t in tracks.tracks if t.key.device == device and t.key.kind in _ORDER]
