"""The lines around every page: a banner, the row of pages, the place of a replay, and the keys."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rich.style import Style
from textual import events

from decodescope.analyzer.text.formatting import position, shorten
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import Command, offered, reachable, rekeyed
from decodescope.tui.link.base import NEWEST_NS, Playback
from decodescope.tui.model.notices import Banner
from decodescope.tui.model.replaying import speed_words
from decodescope.tui.model.view import View
from decodescope.tui.panels.messages import GoTo
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Row, Sheet

BAR = "▌ "
HINT_GAP = "   "


def headlines(banner: Banner, width: int) -> list[str]:
    """The headline, wrapped to fit beside the bar in `width` cells."""
    return textwrap.wrap(plain_line(banner.headline), max(width - len(BAR), 1)) or [""]


def hint_has_own_row(banner: Banner, width: int) -> bool:
    """Whether the hint needs a row: there are details, or the headline leaves no room."""
    beside = len(headlines(banner, width)[-1]) + len(HINT_GAP) + len(banner.hint)
    return bool(banner.hint) and (bool(banner.details) or beside > width - len(BAR))


def banner_rows(banner: Banner | None, width: int, height: int) -> int:
    """The rows it takes on a screen of this size: at least one, at most a quarter of the height."""
    if banner is None:
        return 0
    wanted = len(headlines(banner, width)) + len(banner.details) + hint_has_own_row(banner, width)
    return max(1, min(wanted, height // 4))


class BannerPanel(Panel[Banner | None]):
    """A coloured block. If rows are short, the oldest details are dropped first, then the end of
    the headline; on a single row the hint is cut off with the headline."""

    NAME = "banner"
    FRAMES = ()

    def pick(self, view: View) -> Banner | None:
        return view.banner

    def draw(self, data: Banner | None, width: int, height: int) -> Sheet:
        if data is None:
            return Sheet([])
        inks = self._brush.inks
        ink = inks.bad if data.severity == "error" else inks.warn
        room = max(width - len(BAR), 0)
        own_hint = hint_has_own_row(data, width) and height > 1
        lines = headlines(data, width)
        if len(lines) > (most := max(height - own_hint, 1)):
            last = " ".join(lines[most - 1 :])
            lines = [*lines[: most - 1], shorten(last, room)]
        rows = [Row().add(BAR, ink).left(line, room, ink) for line in lines[:-1]]
        last_row = Row().add(BAR, ink).add(lines[-1], ink)
        if data.hint and not own_hint:
            last_row.left(HINT_GAP + data.hint, max(width - last_row.cells, 0), inks.dim)
        rows.append(last_row)
        left = max(height - len(rows) - own_hint, 0)
        for detail in data.details[len(data.details) - left :] if left else ():
            rows.append(Row().add(BAR, ink).left(" ".join(detail.split()), room, inks.dim))
        if own_hint:
            rows.append(Row().add(BAR, ink).left(data.hint, room, inks.text))
        return Sheet(rows)


def fitting_keys(commands: tuple[Command, ...], width: int) -> tuple[Command, ...]:
    """The commands whose labels fit in `width` cells: the least important are dropped."""
    kept = list(commands)
    while kept and sum(len(command.shown_key) + len(command.label) + 3 for command in kept) > width:
        kept.remove(max(kept, key=lambda command: command.priority))
    return tuple(kept)


class KeysPanel(Panel[tuple[Command, ...]]):
    """The keys that work now, and what they do; each can be clicked. Those of the focused panel
    hide those of the app. `keymap` has the keys of the user."""

    NAME = "keys"
    FRAMES = ()

    keymap: Mapping[str, str] = MappingProxyType({})

    def pick(self, view: View) -> tuple[Command, ...]:
        panel, local = self.screen.focused if self.is_attached else None, tuple[Command, ...]()
        everywhere = rekeyed(offered(view), "app", self.keymap)
        if isinstance(panel, Panel):
            local = rekeyed(panel.keys_now, panel.scope, self.keymap)
            everywhere = () if panel.check_consume_key("", None) else reachable(local, everywhere)
        named = (
            replace(command, action=f"{scope}.{command.action}")
            for scope, commands in (("focused", local), ("app", everywhere))
            for command in commands
        )
        return tuple(command for command in named if command.label)

    def draw(self, data: tuple[Command, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        for command in fitting_keys(data, width - 1):
            click = Style.from_meta({"@click": command.action})
            row.add(command.shown_key, inks.key + click)
            row.add(f" {command.label}", inks.dim + click).add("  ", inks.text)
        return Sheet([row])


class TabsPanel(Panel[str]):
    """Every page, the current one marked; each can be clicked. `tabs` are (name, key, label) of the
    pages; below 73 cells the others are their keys alone."""

    NAME = "tabs"
    FRAMES = ()

    def __init__(self, brush: Brush, view: View, tabs: Sequence[tuple[str, str, str]]) -> None:
        self._tabs = tabs
        super().__init__(brush, view)

    def pick(self, view: View) -> str:
        return view.page

    def draw(self, data: str, width: int, height: int) -> Sheet:
        inks, row = self._brush.inks, Row()
        # A tab is " 1 Step": the page's label, its key and two spaces.
        cells = sum(len(label) + 3 for _, _, label in self._tabs)
        named, spread = cells < width, cells + 2 * len(self._tabs) <= width
        chip, before = inks.chip(inks.accent), ""
        for name, key, label in self._tabs:
            current = name == data
            click = Style.from_meta({"@click": f"app.page('{name}')"})
            row.add(" ", chip if current or before == data else inks.text)
            row.add(key, (chip if current else inks.key) + click)
            if named or current:
                row.add(f" {label}", (chip if current else inks.dim) + click)
            if spread:
                row.add(" ", chip if current else inks.text).add(" ", inks.text)
            before = "" if spread else name
        if before == data:
            row.add(" ", chip)
        return Sheet([row])


_LEAST_CELLS = 8


class PlaybackPanel(Panel[Playback | None]):
    """State, place and speed of the replay, and its marks to scale."""

    NAME = "playback"
    FRAMES = ()

    _track = (0, 0)

    def pick(self, view: View) -> Playback | None:
        return view.playback

    def as_text(self, data: Playback | None) -> list[str]:
        return [] if data is None else [" ".join(_playback_words(data))]

    def draw(self, data: Playback | None, width: int, height: int) -> Sheet:
        self._track = (0, 0)
        if data is None:
            return Sheet([])
        inks = self._brush.inks
        state, where, speed = _playback_words(data)
        row = Row().add(f" {state} ", inks.strong).add(where, inks.text).add(f" {speed} ", inks.dim)
        cells = width - row.cells - 1
        if cells >= _LEAST_CELLS:
            self._track = (row.cells, cells)
            self._draw_track(row, data, cells)
        return Sheet([row])

    def _draw_track(self, row: Row, data: Playback, cells: int) -> None:
        """The part that was played, the place, and marks: `|` a window, the glyph of a switch."""
        inks, glyphs = self._brush.inks, self._brush.glyphs
        position_cell = _track_cell(data.position_ns, data.duration_ns, cells)
        mark_cells: dict[int, str] = {}
        # Where both are in a cell, the switch is drawn.
        for mark in sorted(data.marks, key=lambda mark: mark.kind == "switch"):
            cell = _track_cell(mark.t_ns, data.duration_ns, cells)
            mark_cells[cell] = "|" if mark.kind == "window" else glyphs.tick
        for place in range(cells):
            if place == position_cell:
                row.add("\u25cf" if glyphs.unicode else "O", inks.accent)
            elif place in mark_cells:
                row.add(mark_cells[place], inks.warn)
            else:
                style = inks.accent if place < position_cell else inks.border
                row.add("\u2500" if glyphs.unicode else "-", style)

    def on_click(self, event: events.Click) -> None:
        start, cells = self._track
        if isinstance(self._data, Playback) and cells:
            share = (event.x - start) / max(cells - 1, 1)
            if 0 <= share <= 1:
                t_ns = NEWEST_NS if share == 1 else round(share * self._data.duration_ns)
                self.post_message(GoTo(t_ns))


def _playback_words(data: Playback) -> tuple[str, str, str]:
    where = f"{position(data.position_ns)} / {position(data.duration_ns)}"
    return data.state, where, speed_words(data.speed)


def _track_cell(t_ns: int, duration_ns: int, cells: int) -> int:
    return min(t_ns * (cells - 1) // max(duration_ns, 1), cells - 1)
