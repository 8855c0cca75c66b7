"""The panels of the last window on the live page: top kernels, idle gaps, the last step."""

from dataclasses import dataclass

from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables.gap_classes_table import GapClassRow, idle_by_class_table
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.text.formatting import duration, percent
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine
from decodescope.tui.panels.table_layout import TableLayout, table_lines
from decodescope.tui.panels.table_rows import TableRows, text_lines
from decodescope.tui.style.palette import Glyphs

_GAPS_TITLE = "Idle gaps"
_MOST_KERNELS, _LEAST_NAME = 60, 12


_TOP_KERNELS = ("name", "count", "total_ns", "attributed_ns", "share", "attributed_share")


@dataclass(frozen=True, slots=True)
class TopKernels:
    """The first kernels, per `per` ("step" or "trace"). `attributed`: their times and shares are
    attributed time, because ops overlap."""

    rows: TableRows[KernelReport]
    attributed: bool
    note: str
    per: str


@dataclass(frozen=True, slots=True)
class TopGaps:
    """The classes of gaps, per `per`."""

    rows: TableRows[GapClassRow]
    note: str
    per: str


def _noun(view: View) -> str:
    return "operators" if view.on_cpu else "kernels"


def _steps_note(window: Window) -> str:
    steps = len(window.report.steps)
    return f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"


class KernelsPanel(Panel[TopKernels]):
    """The kernels that take most time."""

    NAME = "kernels_top"
    PART = "window"

    _window: Window | None = None
    _picked: TopKernels | Empty = Empty("", "")

    def pick(self, view: View, moment: Moment) -> TopKernels | Empty:
        if view.window is None:
            return Empty(f"Top {_noun(view)}", view.waiting)
        if view.window is not self._window:
            self._window = view.window
            self._picked = self._table(view.window, view.on_cpu)
        return self._picked

    def _table(self, window: Window, on_cpu: bool) -> TopKernels | Empty:
        report = window.report
        table = kernels_table(
            report.kernels,
            attributed=report.overlapping,
            on_cpu=on_cpu,
            steps=len(report.steps),
            most=_MOST_KERNELS,
        )
        if not table.rows:
            return Empty(
                f"Top {table.noun}", f"no {table.noun} in this window", _steps_note(window)
            )
        not_ranked_by = "total_ns" if report.overlapping else "attributed_ns"
        keys = [key for key in _TOP_KERNELS if key != not_ranked_by]
        rows = TableRows(table.only(*keys, least=_LEAST_NAME), self._glyphs)
        return TopKernels(rows, report.overlapping, _steps_note(window), window.per)

    def as_text(self, data: TopKernels) -> list[TextLine]:
        return [
            self._title(data, f" per {data.per} ({data.note})"),
            *text_lines(data.rows, self._brush.inks),
        ]

    def draw(self, data: TopKernels, width: int, height: int) -> Sheet:
        rows = table_lines(data.rows, width, height, self._brush)
        return Sheet(rows, self._title(data, ""), data.note)

    def _title(self, data: TopKernels, more: str) -> str:
        by = " by attributed time" if data.attributed else ""
        return f"Top {data.rows.table.noun}{by}{more}"

    def _glyphs(self) -> Glyphs:
        return self._brush.glyphs


class GapsPanel(Panel[TopGaps]):
    """The classes of gaps; their meaning stands beside them, or below where rows are left."""

    NAME = "gaps_top"
    PART = "window"

    _window: Window | None = None
    _picked: TopGaps | Empty = Empty("", "")

    def pick(self, view: View, moment: Moment) -> TopGaps | Empty:
        if view.window is None:
            return Empty(_GAPS_TITLE, view.waiting)
        if view.window is not self._window:
            self._window = view.window
            self._picked = self._table(view.window)
        return self._picked

    def _table(self, window: Window) -> TopGaps | Empty:
        table = idle_by_class_table(window.report, len(window.report.steps))
        if not table.rows:
            return Empty(_GAPS_TITLE, "no gaps in this window", _steps_note(window))
        return TopGaps(TableRows(table, self._glyphs), _steps_note(window), window.per)

    def as_text(self, data: TopGaps) -> list[TextLine]:
        title = f"{_GAPS_TITLE} per {data.per} ({data.note})"
        return [title, *text_lines(data.rows, self._brush.inks)]

    def draw(self, data: TopGaps, width: int, height: int) -> Sheet:
        layout = TableLayout()
        head, *lines = layout.lines(data.rows, width, height, self._brush)
        if layout.shows(data.rows, "meaning") or height <= 2 * len(lines):
            return Sheet([head, *lines], _GAPS_TITLE, data.note)
        meaning = next(column for column in data.rows.table.columns if column.key == "meaning")
        rows = [head]
        for line, gaps in zip(lines, data.rows.table.rows, strict=False):
            rows += [line, Row().to(2).add(meaning.cell(gaps), self._brush.inks.faint)]
        return Sheet(rows, _GAPS_TITLE, data.note)

    def _glyphs(self) -> Glyphs:
        return self._brush.glyphs


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
