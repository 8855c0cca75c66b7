"""Draws one screen without a terminal: the app itself, headless, until it has what to show."""

import asyncio

from textual.pilot import Pilot
from textual.strip import Strip

from decodescope.analyzer.errors import InputError, known_error
from decodescope.tui.app import DecodescopeApp

_LOOK_EVERY_S = 0.02
_ENDED = ("ended", "failed", "worker died", "unreadable")


def draw_once(app: DecodescopeApp, width: int, height: int) -> list[Strip]:
    """The lines of the app's screen, `width` cells each, once there is a window to show or there
    will be none; then the app has ended, and its worker too. A signal, or a worker that cannot run,
    ends it without any line.

    Raises:
        InputError: the file cannot be read.
        DecodescopeError: the app ended with an error.
    """
    lines: list[Strip] = []

    async def look(pilot: Pilot[object]) -> None:
        while app.is_running and not _complete(app):
            await asyncio.sleep(_LOOK_EVERY_S)
        if not app.is_running:
            return
        app.paint()
        await pilot.pause()
        lines.extend(app.screen._compositor.render_strips())
        app.exit()

    app.run(headless=True, size=(width, height), auto_pilot=look)
    if app.crash is not None:
        raise known_error(app.crash) if isinstance(app.crash, Exception) else app.crash
    view = app.view()
    if view.window is None and app.fatal_failure is not None:
        return []
    if view.state in ("failed", "unreadable") and view.window is None and view.banner is not None:
        raise InputError(view.banner.headline)
    return [line.crop(0, width) for line in lines]


def _complete(app: DecodescopeApp) -> bool:
    view = app.view()
    if app.busy:
        return False
    if view.is_attached and view.attached is not None and not view.choices:
        return view.attached.is_known
    if view.window is not None:
        return True
    # A replay waits at its last window, which may be unreadable or of another variant.
    replay = view.playback
    waits = replay is not None and replay.state in ("paused", "ended") and replay.arrived
    return (view.state in _ENDED or waits) and not view.analysing
