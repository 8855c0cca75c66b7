"""The last step on the live page: its streams, its gaps and what they mean, without keys."""

from dataclasses import dataclass

from decodescope.analyzer.text.formatting import duration, percent
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet

_AXIS_AND_LEGEND = 2


@dataclass(frozen=True, slots=True)
class LastStepData:
    """The window, of the file or run and its variant in `source`; windows are compared by
    identity."""

    window: Window
    source: tuple[str, int]
    note: str


class LastStepPanel(Panel[LastStepData]):
    """A few tracks of one device during the last step; of a trace without steps, during all ops."""

    NAME = "timeline_top"
    AGES = True
    PART = "window"
    _drawn: tuple[object, list[Row], str] | None = None

    def pick(self, view: View, moment: Moment) -> LastStepData | Empty:
        window = view.window
        if window is None:
            return Empty("Last step", view.waiting)
        if not window.tracks.busy.part.size:
            return Empty("Last step", "nothing ran in this window")
        source = (view.source_name, view.current)
        return LastStepData(window, source, view.window_note(moment))

    def draw(self, data: LastStepData, width: int, height: int) -> Sheet:
        key = (data.window, width, height, self._brush)
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = (key, *self._rows_and_title(data, width, height))
        return Sheet(list(self._drawn[1]), self._drawn[2], data.note)

    def _rows_and_title(self, data: LastStepData, width: int, height: int) -> tuple[list[Row], str]:
        from decodescope.tui.model.timeline import last_step_of, look_at
        from decodescope.tui.panels.timeline.axis import axis, legend
        from decodescope.tui.panels.timeline.drawing import Canvas

        body = max(height - _AXIS_AND_LEGEND, 1)
        tracks = last_step_of(data.window.tracks, body)
        gutter = min(max(len(track.title) for track in tracks.tracks) + 2, width // 3)
        columns = max(width - gutter, 1)
        canvas = Canvas(
            look_at(tracks, columns), self._brush.inks, self._brush.glyphs, columns, gutter
        )
        rows = [*canvas.tracks(0, body, False), axis(canvas), legend(canvas, width)]
        return rows[:height], self._title(data)

    def _title(self, data: LastStepData) -> str:
        from decodescope.tui.model.timeline import device_of_last_step, overlap_share

        tracks, report = data.window.tracks, data.window.report
        ops = "operators" if data.window.analysis.trace.on_cpu else "GPU ops"
        what, count = "All ops", len(data.window.analysis.trace.ops)
        if len(tracks.step):
            what, count = "Last step", report.steps[int(tracks.step[-1])].gpu_ops
        title = f"{what}  {duration(tracks.home[1] - tracks.home[0])}, {count:,} {ops}"
        if len(data.window.analysis.busy) > 1:
            label = data.window.analysis.trace.device_label(device_of_last_step(tracks))
            title += f", here those of {label if isinstance(label, str) else f'GPU {label}'}"
        share = overlap_share(tracks)
        return title + (f", overlapping for {percent(share)} % of it" if share else "")
