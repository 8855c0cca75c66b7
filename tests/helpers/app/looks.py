"""How screens look at every size and on every kind of terminal."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest
from rich._palettes import STANDARD_PALETTE
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual import screen
from textual.color import BLACK, Color
from textual.command import CommandPalette
from textual.renderables.blank import Blank

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.style.palette import LIGHT, contrast
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.screens import NAMED, Rows, Screens, differences, rows_of, written
from tests.helpers.scripted import settle

# The frames of panels are lines at the first two sizes, and boxes at the others. The last one is
# that of keys.
SIZES = ((60, 16), (80, 24), (200, 50), (120, 40))
Act = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Look:
    """A kind of terminal, its sizes, and the theme on it where that is not the first one."""

    name: str
    traits: TerminalTraits
    sizes: tuple[tuple[int, int], ...] = SIZES
    theme: str | None = None


# What is where depends on the size, and how it looks on the terminal, with lines and with boxes.
FEW_SIZES = (SIZES[0], SIZES[-1])
# Themes on the same kind of terminal follow each other: the app changes them while it runs.
LOOKS = (
    Look("dark", TerminalTraits()),
    Look("light", TerminalTraits(), FEW_SIZES, LIGHT.name),
    Look("16 colours", TerminalTraits(few_colors=True), FEW_SIZES),
    Look("NO_COLOR", TerminalTraits(color=False), FEW_SIZES),
)
# Without UTF-8, with and without colours.
ASCII = (
    Look("dark", TerminalTraits(unicode=False)),
    Look("NO_COLOR", TerminalTraits(unicode=False, color=False)),
)
# Of text to its ground; WCAG 2 asks for 4.5, and of large text for 3.
LEAST = 3.0
# Of pages and dialogs that differ from others by what they say.
DARK_ONLY = LOOKS[:1]
ONE_LOOK = (Look("dark", TerminalTraits(), ((120, 40),)),)


class ScreensExtension(SingleFileSnapshotExtension):
    """A text file for each place; a difference names the look, the size and the row."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"

    def serialize(self, data: Screens, **_: Any) -> str:
        return written(data)

    def diff_lines(self, serialized_data: str, snapshot_data: str) -> Iterator[str]:
        yield from differences(serialized_data, snapshot_data) if snapshot_data else ()


class Looks:
    """Walks with an app on each kind of terminal, and compares what it shows at each stop."""

    def __init__(self, snapshot: SnapshotAssertion, looks: tuple[Look, ...] = LOOKS) -> None:
        self._snapshot, self._looks = snapshot.use_extension(ScreensExtension), looks

    async def walk(
        self,
        app_on: Callable[[TerminalTraits], DecodescopeApp],
        stops: Mapping[str, Act],
    ) -> None:
        """Each stop is what happens before its screens are taken, at 120x40."""
        taken: dict[str, dict[str, dict[str, Rows]]] = {stop: {} for stop in stops}
        with pytest.MonkeyPatch.context() as patch:
            # What is behind a dialog costs more to draw than the dialog, and is drawn some time.
            patch.setattr(screen, "BackgroundScreen", lambda *_: Blank(BLACK))
            for traits, looks in groupby(self._looks, attrgetter("traits")):
                await self._walk(app_on(traits), tuple(looks), stops, taken)
        wrong = []
        for stop, screens in taken.items():
            if not self._snapshot(name=stop) == screens:  # noqa: SIM201
                wrong += [f"{stop} {line}" for line in self._snapshot.get_assert_diff()]
        assert not wrong, "\n".join(wrong)

    async def _walk(
        self,
        app: DecodescopeApp,
        looks: tuple[Look, ...],
        stops: Mapping[str, Act],
        taken: dict[str, dict[str, dict[str, Rows]]],
    ) -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            themes = {look: look.theme or app.theme for look in looks}
            for stop, act in stops.items():
                await act(pilot)
                for field in app.screen.query("Input, TextArea"):
                    field.cursor_blink = False
                for size in looks[0].sizes:
                    await pilot.resize_terminal(*size)
                    # The theme that is shown comes first.
                    shown = [look for look in looks if size in look.sizes]
                    for look in sorted(shown, key=lambda look: themes[look] != app.theme):
                        await self._restyle(pilot, themes[look])
                        rows = await self._taken(pilot, look, stop)
                        taken[stop].setdefault("{}x{}".format(*size), {})[look.name] = rows
        assert app.crash is None

    async def _restyle(self, pilot: Any, theme: str) -> None:
        app = pilot.app
        if theme != app.theme:
            app.theme = theme
            await pilot.pause()
            if isinstance(app.screen, CommandPalette):
                # It keeps its theme, and closes before a user changes it.
                app.stylesheet.update(app.screen, animate=False)

    async def _taken(self, pilot: Any, look: Look, stop: str) -> Rows:
        await settle(pilot)
        width, height = pilot.app.size
        strips = pilot.app.screen._compositor.render_strips()
        rows = rows_of(strips, width, look.traits.few_colors)
        check(f"{stop} {width}x{height}", look, rows)
        return rows


def check(place: str, look: Look, rows: Rows) -> None:
    """NO_COLOR has no colour, sixteen colours have names, and text can be read."""
    for number, row in enumerate(rows, 1):
        where = f"{place} {look.name} row {number}: {row.text}"
        for style in {*row.styles}:
            colors = colors_of(style)
            if look.traits.few_colors:
                assert colors <= {*NAMED}, where
            assert look.traits.color or not colors, where
        if look.traits.color:
            pairs = zip(row.styles, row.text, strict=True)
            faint = [one for one in {one for one, char in pairs if char.isalnum()} if is_faint(one)]
            assert not faint, f"{where}\n{faint}"


@cache
def colors_of(style: str) -> frozenset[str]:
    return frozenset(word for word in style.split() if word.startswith("#") or word in NAMED)


@cache
def is_faint(style: str) -> bool:
    """Whether text does not stand out from its ground."""
    text, _, ground = style.partition(" on ")
    return contrast(*(_shown(side.split()[0]) for side in (text, ground))) < LEAST


def _shown(name: str) -> Color:
    return Color(*STANDARD_PALETTE[NAMED.index(name)]) if name in NAMED else Color.parse(name)


def after(*keys: str) -> Act:
    """Keys, each answered before the next."""

    async def act(pilot: Any) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)

    return act
