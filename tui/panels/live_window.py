"""The panels of the last window on the live page: top kernels, idle gaps, the last step."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from decodescope.analyzer.tables.gaps_table import idle_by_class_table
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.text.formatting import duration, percent
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet
from decodescope.tui.panels.table_layout import TableLayout
from decodescope.tui.panels.window_table import WindowTable, WindowTablePanel

if TYPE_CHECKING:
    from decodescope.analyzer.tracks.build import Tracks
    from decodescope.analyzer.tracks.track import Track

_MOST_KERNELS, _LEAST_NAME = 60, 12
_TOP_KERNELS = ("name", "count", "total_ns", "attributed_ns", "share", "attributed_share")


class KernelsPanel(WindowTablePanel):
    """The kernels that take most time, by attributed time if ops overlap."""

    NAME = "kernels_top"
    PART = "window"
    TITLE = "Top kernels"
    CPU_TITLE = "Top operators"

    def contents(self, window: Window, view: View) -> WindowTable | Empty:
        report, note = window.report, window.steps_words
        table = kernels_table(
            report.kernels,
            attributed=report.overlapping,
            on_cpu=view.on_cpu,
            steps=report.main_steps.steps,
            most=_MOST_KERNELS,
        )
        if not table.rows:
            return Empty(f"Top {table.noun}", f"no {table.noun} in this window", note)
        not_ranked_by = "total_ns" if report.overlapping else "attributed_ns"
        keys = [key for key in _TOP_KERNELS if key != not_ranked_by]
        title = f"Top {table.noun}{' by attributed time' if report.overlapping else ''}"
        table = table.only(*keys, least=_LEAST_NAME)
        return WindowTable(table, title, note, f"{title} per {window.per} ({note})")


class GapsPanel(WindowTablePanel):
    """The classes of gaps; their meaning stands beside them, or below where rows are left."""

    NAME = "gaps_top"
    PART = "window"
    TITLE = "Idle gaps"

    def contents(self, window: Window, view: View) -> WindowTable | Empty:
        table = idle_by_class_table(window.report)
        note = window.steps_words
        if not table.rows:
            return Empty(self.TITLE, "no gaps in this window", note)
        heading = f"{self.TITLE} per {window.per} ({note})"
        return WindowTable(table, self.TITLE, note, heading)

    def draw(self, data: WindowTable, width: int, height: int) -> Sheet:
        layout = TableLayout()
        head, *lines = layout.lines(self._rows, width, height, self._brush)
        if layout.shows("meaning") or height <= 2 * len(lines):
            return Sheet([head, *lines], data.title, data.note)
        meaning = next(column for column in data.table.columns if column.key == "meaning")
        rows = [head]
        for line, gaps in zip(lines, data.table.rows, strict=False):
            rows += [line, Row().to(2).add(meaning.cell(gaps), self._brush.inks.faint)]
        return Sheet(rows, data.title, data.note)


_AXIS_AND_LEGEND = 2


class LastStepPanel(Panel[tuple[Window, str]]):
    """A few tracks of one device during the last step; of a trace without steps, during all ops."""

    NAME = "timeline_top"
    AGES = True
    PART = "window"
    _drawn: tuple[object, list[Row], str] | None = None

    def pick(self, view: View, moment: Moment) -> tuple[Window, str] | Empty:
        window = view.window
        if window is None:
            return Empty("Last step", view.waiting)
        if not window.tracks.busy.part.size:
            return Empty("Last step", "nothing ran in this window")
        return window, view.window_note(moment)

    def draw(self, data: tuple[Window, str], width: int, height: int) -> Sheet:
        window, note = data
        key = (window, width, height, self._brush)
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = (key, self._rows(window.tracks, width, height), _title(window))
        return Sheet(list(self._drawn[1]), self._drawn[2], note)

    def _rows(self, step_tracks: "Tracks", width: int, height: int) -> list[Row]:
        from decodescope.tui.model.look import look_at
        from decodescope.tui.panels.timeline.axis import axis, legend
        from decodescope.tui.panels.timeline.drawing import Canvas

        body = max(height - _AXIS_AND_LEGEND, 1)
        tracks = _last_step_of(step_tracks, body)
        gutter = min(max(len(track.title) for track in tracks.tracks) + 2, width // 3)
        columns = max(width - gutter, 1)
        canvas = Canvas(
            look_at(tracks, columns), self._brush.inks, self._brush.glyphs, columns, gutter
        )
        rows = [*canvas.tracks(0, body, False), axis(canvas), legend(canvas, width)]
        return rows[:height]


def _title(window: Window) -> str:
    tracks, analysis = window.tracks, window.analysis
    ops = "operators" if analysis.trace.on_cpu else "GPU ops"
    span, count = "All ops", len(analysis.trace.ops)
    if len(tracks.step):
        span, count = "Last step", window.report.steps[int(tracks.step[-1])].gpu_ops
    title = f"{span}  {duration(tracks.home[1] - tracks.home[0])}, {count:,} {ops}"
    if len(analysis.busy) > 1:
        label = analysis.trace.device_label(_device_of_last_step(tracks))
        title += f", here those of {label if isinstance(label, str) else f'GPU {label}'}"
    home = np.array(tracks.home)
    overlaps = [t for t in _tracks_of_last_step(tracks) if t.key.kind == "overlap"]
    share = sum(float(track.columns(home).busy[0]) for track in overlaps)
    return title + (f", overlapping for {percent(share)} % of it" if share else "")


def _device_of_last_step(tracks: "Tracks") -> int:
    """The device of the last step; without steps the busiest one. Something must have run."""
    busy = tracks.analysis.busy
    if len(tracks.step):
        return int(tracks.analysis.steps.device[tracks.step[-1]])
    return max(busy, key=lambda device: busy[device].busy_ns)


def _last_step_of(tracks: "Tracks", most: int) -> "Tracks":
    """The time of the last step and at most `most` tracks of its device: its gaps, its stream with
    most ops, its overlap, its other streams."""
    shown = _tracks_of_last_step(tracks)
    streams = [track for track in shown if track.key.kind == "stream"]
    busiest = max(streams, default=None, key=lambda track: len(track.slices))

    def rank(track: "Track") -> int:
        return 1 if track is busiest else ("gap", "", "overlap", "stream").index(track.key.kind)

    kept = {track.key for track in sorted(shown, key=rank)[:most]}
    chosen = tuple(track for track in shown if track.key in kept)
    return replace(tracks, tracks=chosen, world=tracks.home)


def _tracks_of_last_step(tracks: "Tracks") -> list["Track"]:
    device, kinds = _device_of_last_step(tracks), ("stream", "overlap", "gap")
    return [
        track for track in tracks.tracks if track.key.device == device and track.key.kind in kinds
    ]
