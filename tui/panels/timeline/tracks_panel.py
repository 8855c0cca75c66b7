"""A panel that draws tracks, and what it looks at as windows and selections change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decodescope.analyzer.text.formatting import duration, significant
from decodescope.tui.model.picks import NOTHING, Pick, Selection
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.prompt import PromptPanel
from decodescope.tui.panels.sheet import Empty, Row, Sheet
from decodescope.tui.panels.table_rows import smart_pattern

if TYPE_CHECKING:
    from decodescope.analyzer.trace import Bools
    from decodescope.tui.model.look import Look
    from decodescope.tui.panels.timeline.drawing import Canvas

_WITH_MAP, _WITH_AXIS, _WITH_LEGEND = 6, 4, 9
_MAX_GUTTER = 14


@dataclass(frozen=True, slots=True)
class TimelineData:
    """The window and the selection; windows are compared by identity. `source` is the file or run
    and its variant: what the window of another one looks like is not kept."""

    window: Window
    source: tuple[str, int]
    selection: Selection
    note: str


class TracksPanel(PromptPanel[TimelineData]):
    """All tracks of the window. What it looks at follows the window and the selection."""

    AGES = True

    _look: "Look | None" = None
    _source: tuple[str, int] = ("", -1)
    _selection = NOTHING
    _labels: "Bools | None" = None
    _matches = ""
    _own: Pick | None = None
    _at_ns: int | None = None
    _dragged: tuple[int, int] | None = None
    _measured_from: int | None = None
    _top = _columns = _gutter = _body_top = 0
    _track_rows: Sequence[int] = ()
    _drawn: tuple[object, list[Row]] | None = None

    # Panel

    def pick(self, view: View, moment: Moment) -> TimelineData | Empty:
        window = view.window
        if window is None or not window.tracks.tracks:
            self._look = None
            hint = view.waiting if window is None else "nothing in this trace has a time"
            return Empty("Timeline", hint)
        source = (view.source_name, view.current)
        return TimelineData(window, source, view.selection, view.window_note(moment))

    def draw(self, data: TimelineData, width: int, height: int) -> Sheet:
        from decodescope.tui.panels.timeline.drawing import Canvas

        widest = max(len(track.title) for track in data.window.tracks.tracks)
        self._gutter = min(widest + 2, _MAX_GUTTER, width // 3)
        self._columns = max(width - self._gutter, 1)
        look = self._follow(data)
        marks_ns = self._marks_ns(look)
        state = (look, self._selection, self._dragged, tuple(marks_ns), self.has_focus)
        key = (*state, self._brush, width, height, self._prompt and self._prompt.text)
        if self._drawn is None or self._drawn[0] != key:
            brush, chosen = self._brush, self._chosen(look)
            canvas = Canvas(
                look, brush.inks, brush.glyphs, self._columns, self._gutter, *chosen, marks_ns
            )
            self._drawn = (key, self._rows(canvas, width, height))
        return Sheet(list(self._drawn[1]), self._title(look), self._note(data))

    def as_text(self, data: TimelineData) -> list[str]:
        if self._look is None:
            return []
        rows = self._drawn[1] if self._drawn is not None else []
        lines = ["".join(segment.text for segment in row.segments).rstrip() for row in rows]
        return [self._title(self._look), *lines]

    def _follow(self, data: TimelineData) -> "Look":
        """The look at this window and selection, at the width of this moment."""
        from decodescope.tui.model.look import look_again, look_at

        columns, look, tracks = self._columns, self._look, data.window.tracks
        pick = data.selection.pick
        fresh = look is None or look.tracks is not tracks
        if look is None or self._source != data.source:
            look = look_at(tracks, columns)
        elif fresh:
            look = look_again(look, tracks, columns)
        if fresh:
            self._source = data.source
            self._at_ns = self._dragged = self._measured_from = None
            self._labels = self._matching(look)
        if fresh or data.selection != self._selection:
            look = look.marked(data.selection, self._labels)
            if not fresh and pick != self._own:
                look = look.to_marked(columns)
        if (fresh or pick != self._selection.pick) and pick != self._own:
            look = self._to_pick(look, pick)
        self._selection = data.selection
        self._look = look.to(look.viewport, columns)
        return self._look

    def _to_pick(self, look: "Look", pick: Pick | None) -> "Look":
        time, place = look.place_of(pick)
        if time is None:
            return look
        if place is not None and look.track.key.kind != look.tracks.tracks[place].key.kind:
            look = replace(look, cursor=place)
        self._at_ns = time[0]
        return look.show(*time, self._columns)

    def _chosen(self, look: "Look") -> tuple[tuple[int, int] | None, int | None]:
        """The time to mark, and the place of its track (None: all tracks)."""
        if self._dragged is not None:
            return (min(self._dragged), max(self._dragged)), None
        return look.place_of(self._selection.pick)

    def _time(self, look: "Look") -> int:
        """The time of the cursor: where something was selected, else the middle."""
        start_ns, end_ns = look.shown
        if self._at_ns is not None and start_ns <= self._at_ns <= end_ns:
            return self._at_ns
        return look.middle_ns

    def _marks_ns(self, look: "Look") -> dict[int, str]:
        marks = {self._time(look): self._brush.glyphs.tick} if self.has_focus else {}
        return marks | ({} if self._measured_from is None else {self._measured_from: "m"})

    # Drawing

    def _rows(self, canvas: "Canvas", width: int, height: int) -> list[Row]:
        from decodescope.tui.panels.timeline.axis import axis, legend

        head = [canvas.minimap()] if height >= _WITH_MAP else []
        searching = self._prompt is not None or bool(self._search)
        foot = (height >= _WITH_AXIS) + (height >= _WITH_LEGEND or searching)
        body = max(height - len(head) - foot, 1)
        self._body_top = len(head)
        self._scroll(canvas, body)
        rows = [*head, *canvas.tracks(self._top, body, self.has_focus)]
        rows += [Row() for _ in range(len(head) + body - len(rows))]
        if height >= _WITH_AXIS:
            rows.append(axis(canvas))
        if self._prompt is not None:
            rows.append(self._prompt.drawn(self._brush.inks))
        elif self._search:
            row = Row().add(f"/{self._search}  {self._matches}  ", self._brush.inks.key)
            rest = max(width - row.cells, 0)
            rows.append(row.row(legend(canvas, rest), rest))
        elif height >= _WITH_LEGEND:
            rows.append(legend(canvas, width))
        return rows[:height]

    def _scroll(self, canvas: "Canvas", rows: int) -> None:
        """Keep the cursor's track visible, and at first the gaps and interruptions below it."""
        from decodescope.tui.panels.timeline.drawing import track_heights

        kinds = [track.key.kind for track in canvas.look.tracks.tracks]
        last = cursor = canvas.look.cursor
        while last + 1 < len(kinds) and kinds[last] in ("stream", "overlap", "wait"):
            last += 1
        last += kinds[last + 1 : last + 2] == ["interruption"]
        top = min(self._top, cursor, max(len(kinds) - rows, 0))
        self._top = max(top, min(last, cursor + rows - 1) - rows + 1)
        shown = kinds[self._top : self._top + rows]
        self._track_rows = track_heights(shown, rows, canvas.inks.letters)

    def _title(self, look: "Look") -> str:
        step, zoom = look.step(), look.zoom
        start_ns, end_ns = look.shown
        parts = ["Timeline"]
        if step is not None:
            parts.append(f"step {step}")
        parts.append(duration(end_ns - start_ns))
        parts.append(f"zoom {significant(zoom) if zoom < 10 else f'{zoom:,.0f}'}\u00d7")
        if look.time.limit_ns:
            parts.append(f"gaps over {duration(look.time.limit_ns)} are cut short")
        if self._measured_from is not None:
            parts.append(f"measured {duration(abs(self._time(look) - self._measured_from))}")
        return "  ".join(parts)

    def _note(self, data: TimelineData) -> str:
        shown, tracks = len(self._track_rows), len(data.window.tracks.tracks)
        place = f"tracks {self._top + 1}\u2013{self._top + shown} of {tracks}"
        return " · ".join(filter(None, (place if shown < tracks else "", data.note)))

    def _matching(self, look: "Look") -> "Bools | None":
        """Which names match the search; None without one."""
        self._matches = ""
        return look.matching(smart_pattern(self._search)) if self._search else None
