"""A panel that draws tracks, and what it looks at as windows and selections change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decodescope.analyzer.text.formatting import duration, significant
from decodescope.tui.model.picks import NOTHING, Pick, Selection
from decodescope.tui.model.view import Moment, View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.prompt import Prompting
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


class TracksPanel(Prompting, Panel[TimelineData]):
    """All tracks of the window. What it looks at follows the window and the selection."""

    AGES = True

    _look: "Look | None" = None
    _of: Window | None = None
    _source: tuple[str, int] = ("", -1)
    _selection = NOTHING
    _labels: "Bools | None" = None
    _search = _matches = ""
    _own: Pick | None = None
    _at_ns: int | None = None
    _dragged: tuple[int, int] | None = None
    _measured_from: int | None = None
    _top = _columns = _gutter = _body = _body_top = 0
    _track_rows: Sequence[int] = ()
    _drawn: tuple[object, list[Row]] | None = None

    # Panel

    def pick(self, view: View, moment: Moment) -> TimelineData | Empty:
        window = view.window
        if window is None:
            self._of = self._look = None
            return Empty("Timeline", view.waiting)
        if not window.tracks.tracks:
            self._of = self._look = None
            return Empty("Timeline", "nothing in this trace has a time")
        source = (view.source_name, view.current)
        return TimelineData(window, source, view.selection, view.window_note(moment))

    def draw(self, data: TimelineData, width: int, height: int) -> Sheet:
        from decodescope.tui.panels.timeline.drawing import Canvas

        tracks = data.window.tracks.tracks
        widest = max(len(track.title) for track in tracks)
        self._gutter = min(widest + 2, _MAX_GUTTER, width // 3)
        self._columns = max(width - self._gutter, 1)
        look = self._follow(data)
        key = (
            look,
            self._selection,
            self._dragged,
            self._brush,
            width,
            height,
            self.has_focus,
            self._prompt and self._prompt.text,
            self._top,
            tuple(self._marks_ns(look)),
        )
        if self._drawn is None or self._drawn[0] != key:
            canvas = Canvas(look, self._brush.inks, self._brush.glyphs, self._columns, self._gutter)
            canvas.chosen, canvas.chosen_track = self._chosen(look)
            canvas.marks_ns = self._marks_ns(look)
            rows = self._rows(canvas, width, height)
            self._drawn = ((*key[:-2], self._top, key[-1]), rows)
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

        columns, look, window = self._columns, self._look, data.window
        pick = data.selection.pick
        fresh = look is None or self._of is not window
        if look is None or self._of is None or self._source != data.source:
            look = look_at(window.tracks, columns)
        elif fresh:
            look = look_again(look, window.tracks, columns)
        if fresh:
            self._of, self._source = window, data.source
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
        from decodescope.tui.model.look import slice_of_pick, time_of_pick

        time = time_of_pick(look.tracks, pick)
        if time is None:
            return look
        place = slice_of_pick(look.tracks, pick)
        if place is not None and look.track.key.kind != look.tracks.tracks[place[0]].key.kind:
            look = replace(look, cursor=place[0])
        self._at_ns = time[0]
        return look.show(*time, self._columns)

    def _chosen(self, look: "Look") -> tuple[tuple[int, int] | None, int | None]:
        from decodescope.tui.model.look import slice_of_pick, time_of_pick

        if self._dragged is not None:
            return (min(self._dragged), max(self._dragged)), None
        pick = self._selection.pick
        place = slice_of_pick(look.tracks, pick)
        return time_of_pick(look.tracks, pick), None if place is None else place[0]

    def _time(self, look: "Look") -> int:
        """The time of the cursor: where something was selected, else the middle."""
        start_ns, end_ns = look.shown
        if self._at_ns is not None and start_ns <= self._at_ns <= end_ns:
            return self._at_ns
        return look.time.time_one(look.viewport.start_ns + look.viewport.span_ns // 2)

    def _marks_ns(self, look: "Look") -> dict[int, str]:
        """Times to mark on the axis, and their marks."""
        marks = {self._time(look): self._brush.glyphs.tick} if self.has_focus else {}
        return marks | ({} if self._measured_from is None else {self._measured_from: "m"})

    # Drawing

    def _rows(self, canvas: "Canvas", width: int, height: int) -> list[Row]:
        from decodescope.tui.panels.timeline.axis import axis, legend

        head = [canvas.minimap()] if height >= _WITH_MAP else []
        searching = self._prompt is not None or bool(self._search)
        foot = (height >= _WITH_AXIS) + (height >= _WITH_LEGEND or searching)
        self._body = max(height - len(head) - foot, 1)
        self._body_top = len(head)
        self._scroll(canvas)
        body = canvas.tracks(self._top, self._body, self.has_focus)
        body += [Row() for _ in range(self._body - len(body))]
        rows = [*head, *body]
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

    def _scroll(self, canvas: "Canvas") -> None:
        """Keep the cursor's track visible, and at first the gaps and interruptions below it."""
        from decodescope.tui.panels.timeline.drawing import track_heights

        tracks, cursor = canvas.look.tracks.tracks, canvas.look.cursor
        wanted = cursor
        while wanted + 1 < len(tracks) and tracks[wanted].key.kind in ("stream", "overlap", "wait"):
            wanted += 1
        if wanted + 1 < len(tracks) and tracks[wanted + 1].key.kind == "interruption":
            wanted += 1
        last = min(wanted, cursor + self._body - 1)
        self._top = max(min(self._top, cursor, max(len(tracks) - self._body, 0)), 0)
        self._top = max(self._top, last - self._body + 1)
        kinds = [track.key.kind for track in tracks[self._top : self._top + self._body]]
        self._track_rows = track_heights(kinds, self._body, canvas.inks.letters)

    def _title(self, look: "Look") -> str:
        step, steps = look.step(), look.tracks.steps
        start_ns, end_ns = look.shown
        parts = ["Timeline"]
        if step is not None:
            parts.append(f"step ◂ {step + 1}/{len(steps)} ▸")
        parts.append(duration(end_ns - start_ns))
        zoom = look.zoom
        parts.append(f"zoom {significant(zoom) if zoom < 10 else f'{zoom:,.0f}'}\u00d7")
        if look.time.limit_ns:
            parts.append(f"gaps over {duration(look.time.limit_ns)} are cut short")
        if self._measured_from is not None:
            parts.append(f"measured {duration(abs(self._time(look) - self._measured_from))}")
        return "  ".join(parts)

    def _note(self, data: TimelineData) -> str:
        shown = len(self._track_rows)
        tracks = len(data.window.tracks.tracks)
        some = shown < tracks
        place = f"tracks {self._top + 1}\u2013{self._top + shown} of {tracks}" if some else ""
        return " · ".join(part for part in (place, data.note) if part)

    def _matching(self, look: "Look") -> "Bools | None":
        """Which names match the search, those of ops also by short name; None without one."""
        import numpy as np

        from decodescope.analyzer.names.short_names import short_name

        self._matches = ""
        if not self._search:
            return None
        pattern = smart_pattern(self._search)
        names, trace = look.tracks.names, look.tracks.analysis.trace
        matching = {name for name in names if pattern.search(name)}
        ops = {trace.names[name] for name in np.unique(trace.ops.name).tolist()}
        matching |= {name for name in ops if pattern.search(short_name(name))}
        return np.array([name in matching for name in names], dtype=np.bool_)
