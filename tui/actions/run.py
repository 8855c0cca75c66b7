"""Actions on a run: switch variants, pause, step, capture, restart, change its settings; and on a
replay: seek, and change its speed."""

import math
from typing import Literal

from decodescope.analyzer.protocol.messages import (
    CaptureTrace,
    ChangeSettings,
    Pause,
    Resume,
    Settings,
    StepOnce,
    SwitchVariant,
)
from decodescope.analyzer.recordings.recording import RecordingMark
from decodescope.tui.feeds import Feeds
from decodescope.tui.link.base import NEWEST_NS, Seek, Speed
from decodescope.tui.model.attached import Attached
from decodescope.tui.model.replaying import last_of, neighbour_mark, next_speed
from decodescope.tui.panels.messages import AskFile

RESTART_WITHIN_S = 3.0


class RunController:
    """A replay obeys the actions that make sense for it; the others say why they do nothing.
    Without a replay, those that need one do nothing."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._app, self._painter = feeds.app, feeds.painter
        self._restart_until = -math.inf

    def action_variants(self) -> None:
        from decodescope.tui.screens.dialogs import VariantsScreen

        view = self._feeds.view()
        title = "Opened files" if view.kind == "trace" else "Variants"
        title = "Windows" if view.attached is not None else title
        if len(view.possible) < 2:
            self._app.notify("There is nothing to switch to.", severity="warning")
        else:
            screen = VariantsScreen(title, view.choices, view.current)
            self._app.push_screen(screen, self.action_choose)

    async def action_choose(self, index: int | None) -> None:
        view, feed = self._feeds.view(), self._feeds.shown
        if index is None or not 0 <= index < len(view.choices):
            return
        choice = view.choices[index]
        if feed.kind == "trace" or view.attached is not None:
            self._feeds.select_file(index)
        elif choice.unavailable is not None:
            self._app.notify(f"{choice.name}: {choice.unavailable}", severity="warning")
        elif choice.recorded is not None:
            self._app.post_message(AskFile("open", choice.recorded))
        elif view.playback is not None:
            await self._seek(last_of(view.playback, choice.name))
        elif feed.kind == "live" and index != view.current:
            await feed.send(SwitchVariant(choice.name))

    async def action_pause(self) -> None:
        feed = self._feeds.shown
        playback = feed.view().playback
        if playback is None:
            await feed.pause_or_resume()
        elif playback.state == "ended":
            await self.action_restart()
        else:
            runs = playback.state in ("following", "playing")
            await feed.send(Pause() if runs else Resume())
            self._painter.paint()

    def action_settings(self) -> None:
        from decodescope.tui.screens.settings import SettingsScreen

        link = self._feeds.shown.link
        if link is None or link.settings is None:
            self._app.notify("Only a live worker has settings.", severity="warning")
            return
        # What was asked for and does not run was refused; it can be corrected.
        refused = self._feeds.asked if self._feeds.asked != link.settings else None
        hello = self._feeds.view().hello
        self._app.push_screen(SettingsScreen(link.settings, refused, hello), self._change)

    async def _change(self, settings: Settings | None) -> None:
        feed, link = self._feeds.shown, self._feeds.shown.link
        if settings is None or link is None or feed.refused():
            self._painter.paint()
            return
        self._feeds.asked = settings
        await link.send(ChangeSettings(settings))
        if feed.view().died is not None:
            feed.restarted()
            self._painter.paint()
            await link.restart()

    async def action_step(self) -> None:
        feed = self._feeds.shown
        if feed.kind != "live":
            self._app.notify("Only a live worker runs a step.", severity="warning")
        elif feed.view().state != "paused":
            self._app.notify("One step at a time: pause the worker first (p).", severity="warning")
        else:
            await feed.send(StepOnce())

    async def action_capture(self) -> None:
        feed, view = self._feeds.shown, self._feeds.view()
        if view.is_attached and view.attached is not None:
            await self._take_window(view.attached)
        elif view.interpreted:
            self._app.notify("Triton's interpreter has no times to capture.", severity="warning")
        elif feed.kind == "live" and await feed.send(CaptureTrace()):
            self._app.notify("The next window will be written to the current folder.")
        elif feed.kind == "replay" and view.window is not None:
            self._feeds.save_trace(view.window.path, view.variant or "replay")
        else:
            self._app.notify("There is no run to capture a trace from.", severity="warning")

    async def _take_window(self, attached: Attached) -> None:
        if not attached.target.length:
            self._app.notify(attached.target.cost, severity="warning")
        elif attached.stage:
            self._app.notify("A window is being taken; one at a time.", severity="warning")
        else:
            await self._feeds.shown.send(CaptureTrace())

    async def action_restart(self) -> None:
        """Restart the worker or the replay; a running worker only if R is pressed twice."""
        feed = self._feeds.shown
        view = feed.view()
        if feed.link is None or view.is_attached or feed.refused():
            self._painter.paint()
            return
        now = self._feeds.clock.monotonic()
        alive = feed.kind == "live" and view.live_figures and view.silent_s is None
        if alive and now > self._restart_until:
            self._restart_until = now + RESTART_WITHIN_S
            text = "The worker is running. Press R again to restart it."
            self._app.notify(text, severity="warning")
            return
        feed.restarted()
        self._painter.paint()
        await feed.link.restart()

    async def action_seek_mark(self, kind: Literal["window", "switch"], forward: bool) -> None:
        if (playback := self._feeds.view().playback) is not None:
            mark = neighbour_mark(playback, kind, forward)
            if mark is None:
                mark_words = "window" if kind == "window" else "change of variant"
                place = "after" if forward else "before"
                self._app.notify(f"There is no {mark_words} {place} this moment.")
            await self._seek(mark)

    async def action_speed(self, steps: int) -> None:
        if (playback := self._feeds.view().playback) is not None:
            await self._feeds.shown.send(Speed(next_speed(playback.speed, steps)))
            self._painter.paint()

    async def action_follow(self) -> None:
        playback = self._feeds.view().playback
        if playback is None or not playback.growing:
            self._app.notify("Nothing is being recorded here.", severity="warning")
        else:
            await self.seek_to(NEWEST_NS)

    def action_seek_time(self) -> None:
        from decodescope.tui.screens.dialogs import SeekScreen

        if (playback := self._feeds.view().playback) is not None:
            self._app.push_screen(SeekScreen(playback), self.seek_to)

    async def seek_to(self, t_ns: int | None) -> None:
        if t_ns is not None:
            await self._feeds.shown.send(Seek(t_ns))
            self._painter.changed(self._feeds.shown)

    async def _seek(self, mark: RecordingMark | None) -> None:
        await self.seek_to(mark.t_ns if mark is not None else None)
