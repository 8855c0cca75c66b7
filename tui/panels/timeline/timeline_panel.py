"""The timeline panel: keys, mouse and the selection."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from textual import events

from decodescope.tui.commands import commands_of
from decodescope.tui.model.picks import GapPick, KernelPick, OpPick, Pick, RangePick, SpanPick
from decodescope.tui.panels.messages import Choose, Narrow, PageRequest
from decodescope.tui.panels.prompt import Prompt
from decodescope.tui.panels.timeline.tracks_panel import TracksPanel

if TYPE_CHECKING:
    from decodescope.tui.model.look import Look


class TimelinePanel(TracksPanel):
    NAME = "timeline"
    COMMANDS = commands_of("timeline")

    # Keys

    def edited(self, prompt: Prompt, key: str) -> None:
        self._search = prompt.text
        self._mark_matches()
        if key == "enter":
            self.action_next_match(1)
        self._redraw()

    def forget_typed(self) -> bool:
        typed, self._search = bool(self._search), ""
        if typed:
            self._mark_matches()
            self._redraw()
        return typed

    def _mark_matches(self) -> None:
        if self._look is not None:
            self._search_in(self._look)
            self._look = self._look.marked(self._selection, self._labels)

    def action_pan(self, direction: int) -> None:
        self._change(lambda look: look.to(look.viewport.panned(Fraction(direction, 4))))

    def action_zoom(self, direction: int) -> None:
        """Zoom around the cursor if it is visible, else around the middle."""
        factor = Fraction(1, 2) if direction > 0 else Fraction(2)
        self._change(lambda look: look.zoomed(factor, self._cursor_column(look)))

    def action_fit_all(self) -> None:
        self._change(lambda look: look.fill(*look.tracks.world))

    def action_fit(self) -> None:
        def fitted(look: "Look") -> "Look":
            chosen = self._chosen(look)[0]
            time = look.tracks.home if chosen is None else chosen
            return look.fill(*time, margin=chosen is not None)

        self._change(fitted)

    def action_compress(self) -> None:
        def switched(look: "Look") -> "Look":
            on = not look.time.limit_ns
            changed = look.with_compression(on)
            if on and not changed.time.limit_ns:
                self.app.notify("There is less idle than busy time: nothing to cut short.")
            return changed

        self._change(switched)

    def action_track(self, by: int) -> None:
        def moved(look: "Look") -> "Look":
            place = self._places.index(look.cursor) + by
            return replace(look, cursor=self._places[max(min(place, len(self._places) - 1), 0)])

        self._change(moved)

    def action_slice(self, by: int) -> None:
        if (look := self._look) is not None:
            number = look.neighbour_slice(self._time(look), by < 0)
            if number is not None:
                self._select(look.cursor, number)

    def action_next_gap(self) -> None:
        if (look := self._look) is not None:
            gap = look.next_gap(self._time(look))
            self._choose_gap(gap, "No gap is as wide as a column. Zoom in to see shorter ones.")

    def action_largest_gap(self) -> None:
        if (look := self._look) is not None:
            pick = self._selection.pick
            after = pick.row if isinstance(pick, GapPick) else None
            self._choose_gap(look.largest_gap(after), "There are no gaps.")

    def action_bound(self, side: int) -> None:
        """Move the start or the end of the last span to the cursor; without one, and where the
        other end would be on the wrong side, that is at the edge of what is visible."""
        if (look := self._look) is None:
            return
        at_ns, shown = self._time(look), look.shown
        start_ns, end_ns = shown if self._span is None else self._span
        if side == 0:
            self._choose_span(at_ns, end_ns if end_ns > at_ns else shown[1])
        else:
            self._choose_span(start_ns if start_ns < at_ns else shown[0], at_ns)

    def action_enter(self) -> None:
        pick = self._selection.pick
        if isinstance(pick, OpPick) and self._look is not None:
            trace = self._look.tracks.analysis.trace
            kernel = KernelPick(trace.names[int(trace.ops.name[pick.row])])
            self.post_message(Choose(kernel, page="kernels"))
        elif isinstance(pick, GapPick):
            self.post_message(PageRequest(page="gaps"))
        elif isinstance(pick, RangePick):
            self.post_message(Narrow(pick.path))

    def action_next_match(self, by: int) -> None:
        look = self._look
        if look is None or self._matches is None:
            return
        self._match = self._matches.step((self._time(look), look.cursor), by < 0)
        if self._match is not None:
            at = self._match
            self._select(int(self._matches.track[at]), int(self._matches.slice[at]))

    # Mouse

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, Fraction(4, 5))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, Fraction(5, 4))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self._look is not None and self._column(event) is not None:
            self.capture_mouse()
            start_ns, _ = self._look.time_of(self._column(event) or 0)
            self._dragged = (start_ns, start_ns)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged is not None and self._look is not None:
            column = max(min(event.x - self.inset - self._gutter, self._columns - 1), 0)
            start_ns, end_ns = self._look.time_of(column)
            first = self._dragged[0]
            self._dragged = (first, end_ns if start_ns >= first else start_ns)
            self._redraw()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        dragged, self._dragged = self._dragged, None
        self.capture_mouse(False)
        look, column, track = self._look, self._column(event), self._track_at(event)
        if dragged is None or look is None:
            return
        if column is not None and 0 < event.y <= self._body_top:
            self._look = look.centred(column)
        elif column is not None and (at_ns := look.time_of(column))[0] == dragged[0]:
            number = None if track is None else look.tracks.tracks[track].at(*at_ns)
            if track is not None and number is not None:
                self._select(track, number, move=False)
            else:
                self._at_ns = at_ns[0]
                self.post_message(Choose(None))
        else:
            self._choose_span(*dragged)
        self._redraw()

    def _column(self, event: events.MouseEvent) -> int | None:
        column = event.x - self.inset - self._gutter
        return column if 0 <= column < self._columns else None

    def _track_at(self, event: events.MouseEvent) -> int | None:
        row = event.y - 1 - self._body_top
        for place, high in self._track_rows:
            if 0 <= row < high:
                return place
            row -= high
        return None

    def _wheel(self, event: events.MouseEvent, factor: Fraction) -> None:
        event.stop()
        column = self._column(event)
        self._change(lambda look: look.zoomed(factor, column))

    # Selection

    def _change(self, change: Callable[["Look"], "Look"]) -> None:
        if self._look is not None:
            self._look = change(self._look)
            self._redraw()

    def _cursor_column(self, look: "Look") -> int | None:
        if self._at_ns is None:
            return None
        column = look.column_of(self._at_ns)
        return column if 0 <= column < self._columns else None

    def _select(self, track: int, number: int, move: bool = True) -> None:
        look = self._look
        if look is None:
            return
        slices = look.tracks.tracks[track].slices
        start_ns, end_ns = int(slices.start_ns[number]), int(slices.end_ns[number])
        self._look = replace(look, cursor=track)
        if move:
            self._look = self._look.show(start_ns, end_ns, readable=False)
        self._at_ns = start_ns
        self._choose(look.pick_of(track, number))

    def _choose_gap(self, row: int | None, without: str) -> None:
        if row is None or self._look is None:
            self.app.notify(without, severity="warning")
            return
        gaps = self._look.tracks.analysis.gaps
        start_ns, end_ns = int(gaps.start_ns[row]), int(gaps.end_ns[row])
        self._look, self._at_ns = self._look.show(start_ns, end_ns), start_ns
        self._choose(GapPick(row))

    def _choose_span(self, start_ns: int, end_ns: int) -> None:
        if start_ns != end_ns:
            self._span = min(start_ns, end_ns), max(start_ns, end_ns)
            self._choose(SpanPick(*self._span))

    def _choose(self, pick: Pick) -> None:
        """Select; the look is already where it should be."""
        self._own = pick
        self.post_message(Choose(pick))
