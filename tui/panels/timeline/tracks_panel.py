"""A panel that draws tracks, and what it looks at as windows and selections change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decodescope.analyzer.text.formatting import duration, significant
from decodescope.analyzer.trace import Bools
from decodescope.tui.model.picks import NOTHING, Pick, Selection
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.prompt import PromptPanel
from decodescope.tui.panels.sheet import Empty, Row, Sheet
from decodescope.tui.panels.table_rows import smart_pattern

if TYPE_CHECKING:
    from decodescope.analyzer.tracks.finding import Matches
    from decodescope.tui.model.look import Look
    from decodescope.tui.panels.timeline.drawing import Canvas

_WITH_MAP, _WITH_AXIS, _WITH_LEGEND, _LONG_LEGEND = 6, 4, 9, 16
_MAX_GUTTER = 14
_ABOVE_GAPS = ("stream", "lane", "part", "overlap", "wait")


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

    _look: "Look | None" = None
    _source: tuple[str, int] = ("", -1)
    _selection = NOTHING
    _labels: Bools | None = None
    _matches: "Matches | None" = None
    _match: int | None = None
    _own: Pick | None = None
    _at_ns: int | None = None
    _dragged: tuple[int, int] | None = None
    _span: tuple[int, int] | None = None
    _top = _columns = _gutter = _body_top = 0
    _places: Sequence[int] = ()
    _track_rows: Sequence[tuple[int, int]] = ()
    _drawn: tuple[object, list[Row]] | None = None

    # Panel

    def pick(self, view: View) -> TimelineData | Empty:
        window = view.window
        if window is None or not window.tracks.tracks:
            self._look = None
            hint = view.waiting if window is None else "nothing in this trace has a time"
            return Empty("Timeline", hint)
        source = (view.source_name, view.current)
        return TimelineData(window, source, view.selection, view.window_note)

    def draw(self, data: TimelineData, width: int, height: int) -> Sheet:
        from decodescope.tui.panels.timeline.drawing import Canvas

        tracks = data.window.tracks.tracks
        with_parts = height >= _LONG_LEGEND
        titles = [track.title for track in tracks if with_parts or track.key.kind != "part"]
        self._gutter = min(max(map(len, titles)) + 2, _MAX_GUTTER, width // 3)
        self._columns = max(width - self._gutter, 1)
        look = self._follow(data)
        at_ns = self._time(look) if self.has_focus else None
        state = (look, self._selection, self._dragged, at_ns, self._match)
        key = (*state, self._brush, width, height, self._prompt and self._prompt.text)
        if self._drawn is None or self._drawn[0] != key:
            brush, chosen = self._brush, self._chosen(look)
            canvas = Canvas(look, brush.inks, brush.glyphs, self._gutter, *chosen, at_ns)
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

        look, tracks, columns = self._look, data.window.tracks, self._columns
        pick = data.selection.pick
        fresh = look is None or look.tracks is not tracks
        if look is None or self._source != data.source:
            look = look_at(tracks, columns)
        elif fresh:
            look = look_again(look, tracks, columns)
        if look.columns != columns:
            look = replace(look, columns=columns)
        if fresh:
            self._source = data.source
            self._at_ns = self._dragged = self._span = None
            self._search_in(look)
        elif pick is None and pick != self._selection.pick:
            self._span = None
        if fresh or data.selection != self._selection:
            look = look.marked(data.selection, self._labels)
            if not fresh and pick != self._own:
                look = look.to_marked()
        if (fresh or pick != self._selection.pick) and pick != self._own:
            look = self._to_pick(look, pick)
        self._selection = data.selection
        self._look = look.to(look.viewport)
        return self._look

    def _to_pick(self, look: "Look", pick: Pick | None) -> "Look":
        time, places = look.place_of(pick)
        if time is None:
            return look
        if places and look.track.key.kind != look.tracks.tracks[places[0]].key.kind:
            look = replace(look, cursor=places[0])
        self._at_ns = time[0]
        return look.show(*time)

    def _chosen(self, look: "Look") -> tuple[tuple[int, int] | None, tuple[int, ...]]:
        """The time to mark, and the places of its tracks (none: all tracks)."""
        if self._dragged is not None:
            return (min(self._dragged), max(self._dragged)), ()
        return look.place_of(self._selection.pick)

    def _time(self, look: "Look") -> int:
        """The time of the cursor: where something was selected, else the middle."""
        start_ns, end_ns = look.shown
        if self._at_ns is not None and start_ns <= self._at_ns <= end_ns:
            return self._at_ns
        return look.middle_ns

    # Drawing

    def _rows(self, canvas: "Canvas", width: int, height: int) -> list[Row]:
        from decodescope.tui.panels.timeline.axis import axis, legend

        head = [canvas.minimap()] if height >= _WITH_MAP else []
        legend_rows = (height >= _WITH_LEGEND) + (height >= _LONG_LEGEND)
        foot = [axis(canvas)] if height >= _WITH_AXIS else []
        if self._matches is not None and height >= _WITH_AXIS:
            foot.insert(0, canvas.found(self._matches))
        if self._prompt is not None:
            foot.append(self._prompt.drawn(self._brush.inks))
            legend_rows = 0
        body = max(height - len(head) - len(foot) - legend_rows, 1)
        self._body_top = len(head)
        self._scroll(canvas, body)
        rows = [*head, *canvas.tracks(self._track_rows, self.has_focus)]
        rows += [Row() for _ in range(len(head) + body - len(rows))]
        return [*rows, *foot, *legend(canvas, width, legend_rows)][:height]

    def _scroll(self, canvas: "Canvas", rows: int) -> None:
        """Keep the cursor's track visible, and at first the gaps and interruptions below it."""
        from decodescope.tui.panels.timeline.drawing import shown_tracks, track_heights

        letters = canvas.inks.letters
        tracks = shown_tracks(canvas.look, rows, letters)
        self._places, kinds = [place for place, _ in tracks], [kind for _, kind in tracks]
        last = cursor = self._places.index(canvas.look.cursor)
        while last + 1 < len(kinds) and kinds[last] in _ABOVE_GAPS:
            last += 1
        last += kinds[last + 1 : last + 2] == ["interruption"]
        top = min(self._top, cursor, max(len(kinds) - rows, 0))
        self._top = max(top, min(last, cursor + rows - 1) - rows + 1)
        shown = slice(self._top, self._top + rows)
        heights = track_heights(kinds[shown], rows, letters)
        self._track_rows = list(zip(self._places[shown], heights, strict=True))

    def _title(self, look: "Look") -> str:
        step, zoom = look.step(), look.zoom
        start_ns, end_ns = look.shown
        parts = ["Timeline"]
        if self._matches is not None:
            number = "\u2013" if self._match is None else f"{self._match + 1:,}"
            found = f"{number}/{len(self._matches):,}" if len(self._matches) else "no match"
            parts.append(f"/{self._search} {found}")
        if step is not None:
            parts.append(f"step {step}")
        parts.append(duration(end_ns - start_ns))
        parts.append(f"zoom {significant(zoom) if zoom < 10 else f'{zoom:,.0f}'}\u00d7")
        if look.time.limit_ns:
            parts.append(f"gaps over {duration(look.time.limit_ns)} are cut short")
        return "  ".join(parts)

    def _note(self, data: TimelineData) -> str:
        shown, tracks = len(self._track_rows), len(self._places)
        place = f"tracks {self._top + 1}\u2013{self._top + shown} of {tracks}"
        return " · ".join(filter(None, (place if shown < tracks else "", data.note)))

    def _search_in(self, look: "Look") -> None:
        from decodescope.analyzer.tracks.finding import find_labels

        self._labels = self._matches = self._match = None
        if self._search:
            self._labels = look.matching(smart_pattern(self._search))
            self._matches = find_labels(look.tracks, self._labels)
