"""Where a replay is: a line with its windows and changes of variant, which can be clicked."""

from textual import events

from decodescope.analyzer.text.formatting import position
from decodescope.tui.link.base import NEWEST_NS, Playback
from decodescope.tui.model.replaying import speed_words
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.messages import GoTo
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet

_LEAST_CELLS = 8


class PlaybackPanel(Panel[Playback | None]):
    """State, place and speed of the replay, and its marks to scale."""

    NAME = "playback"
    FRAMES = ()
    AGES = True

    _track = (0, 0)

    def pick(self, view: View, moment: Moment) -> Playback | None:
        return view.playback

    def as_text(self, data: Playback | None) -> list[str]:
        return [] if data is None else [" ".join(_words(data))]

    def draw(self, data: Playback | None, width: int, height: int) -> Sheet:
        self._track = (0, 0)
        if data is None:
            return Sheet([])
        inks = self._brush.inks
        state, where, speed = _words(data)
        row = Row().add(f" {state} ", inks.strong).add(where, inks.text).add(f" {speed} ", inks.dim)
        cells = width - row.cells - 1
        if cells >= _LEAST_CELLS:
            self._track = (row.cells, cells)
            self._draw_track(row, data, cells)
        return Sheet([row])

    def _draw_track(self, row: Row, data: Playback, cells: int) -> None:
        """The part that was played, the place, and marks: `|` a window, the glyph of a switch."""
        inks, glyphs = self._brush.inks, self._brush.glyphs
        position_cell = _place(data.position_ns, data.duration_ns, cells)
        mark_cells = {
            _place(m.t_ns, data.duration_ns, cells): "|" for m in data.marks if m.kind == "window"
        }
        mark_cells |= {
            _place(m.t_ns, data.duration_ns, cells): glyphs.tick
            for m in data.marks
            if m.kind == "switch"
        }
        for place in range(cells):
            if place == position_cell:
                row.add("\u25cf" if glyphs.unicode else "O", inks.accent)
            elif place in mark_cells:
                row.add(mark_cells[place], inks.warn)
            else:
                row.add(
                    "\u2500" if glyphs.unicode else "-",
                    inks.accent if place < position_cell else inks.border,
                )

    def on_click(self, event: events.Click) -> None:
        """Go to the clicked place."""
        start, cells = self._track
        if self._data is not None and isinstance(self._data, Playback) and cells:
            share = (event.x - start) / max(cells - 1, 1)
            if 0 <= share <= 1:
                whole = share == 1
                self.post_message(
                    GoTo(NEWEST_NS if whole else round(share * self._data.duration_ns))
                )


def _words(data: Playback) -> tuple[str, str, str]:
    where = f"{position(data.position_ns)} / {position(data.duration_ns)}"
    return data.state, where, speed_words(data.speed)


def _place(t_ns: int, duration_ns: int, cells: int) -> int:
    return min(t_ns * (cells - 1) // max(duration_ns, 1), cells - 1)
