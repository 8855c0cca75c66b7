"""Actions on a run: switch variants, pause, step, capture, restart, change its settings."""

import math

from decodescope.analyzer.protocol.messages import (
    CaptureTrace,
    ChangeSettings,
    Pause,
    Resume,
    Settings,
    StepOnce,
    SwitchVariant,
)
from decodescope.tui.actions.replay import ReplayActions
from decodescope.tui.model.replaying import last_of

RESTART_WITHIN_S = 3.0


class RunActions(ReplayActions):
    """A replay obeys those that make sense for it; the others say why they do nothing."""

    _restart_until = -math.inf

    def action_variants(self) -> None:
        """List the variants or the opened files, and switch to the chosen one."""
        from decodescope.tui.screens.variants import VariantsScreen

        view = self._feed.view()
        title = "Opened files" if view.kind == "trace" else "Variants"
        if len(view.possible) < 2:
            self.notify("There is nothing to switch to.", severity="warning")
        else:
            self.push_screen(VariantsScreen(title, view.choices, view.current), self._switched)

    async def _switched(self, index: int | None) -> None:
        if index is not None:
            await self.action_choose(index)

    async def action_choose(self, index: int) -> None:
        """Switch to the variant, or the trace file, at this place of the list."""
        view, feed = self._feed.view(), self._feed
        if not 0 <= index < len(view.choices):
            return
        choice = view.choices[index]
        if feed.kind == "trace":
            self._select_file(index)
        elif choice.unavailable is not None:
            self.notify(f"{choice.name}: {choice.unavailable}", severity="warning")
        elif view.playback is not None:
            await self._seek(last_of(view.playback, choice.name))
        elif feed.kind == "live" and index != view.current:
            await feed.send(SwitchVariant(choice.name))

    async def action_pause(self) -> None:
        """Pause or resume the worker, or the replay."""
        feed = self._feed
        playback = feed.view().playback
        if playback is None:
            await feed.send(Resume() if feed.view().state == "paused" else Pause())
        elif playback.state == "ended":
            await self.action_restart()
        else:
            runs = playback.state in ("following", "playing")
            await feed.send(Pause() if runs else Resume())
            self._painter.paint()

    def action_settings(self) -> None:
        """Change what the live worker decodes."""
        from decodescope.tui.screens.settings import SettingsScreen

        link = self._feed.link
        if link is None or link.settings is None:
            self.notify("Only a live worker has settings.", severity="warning")
            return
        # What was asked for and does not run was refused; it can be corrected.
        refused = self._asked if self._asked != link.settings else None
        hello = self._feed.view().hello
        self.push_screen(SettingsScreen(link.settings, refused, hello), self._change)

    async def _change(self, settings: Settings | None) -> None:
        feed, link = self._feed, self._feed.link
        if settings is None or link is None or feed.refused():
            self._painter.paint()
            return
        self._asked = settings
        await link.send(ChangeSettings(settings))
        if feed.view().died is not None:
            feed.restarted()
            self._painter.paint()
            await link.restart()

    async def action_step(self) -> None:
        """Run one decode step of a paused worker."""
        feed = self._feed
        if feed.kind != "live" or feed.view().state != "paused":
            self.notify("One step at a time: pause the worker first (p).", severity="warning")
        else:
            await feed.send(StepOnce())

    async def action_capture(self) -> None:
        """Capture a window and write it to a file; of a recording, write the window shown."""
        feed, view = self._feed, self._feed.view()
        if feed.kind == "live" and await feed.send(CaptureTrace()):
            self.notify("The next window will be written to the current folder.")
        elif feed.kind == "replay" and view.window is not None:
            self._background.save_trace(view.window.path, view.variant or "replay")
        else:
            self.notify("There is no run to capture a trace from.", severity="warning")

    async def action_restart(self) -> None:
        """Restart the worker or the replay; a running worker only if R is pressed twice."""
        feed = self._feed
        if feed.link is None or feed.refused():
            self._painter.paint()
            return
        now = self._clock.monotonic()
        view = feed.view()
        alive = feed.kind == "live" and view.live_figures and view.silent_s(now) is None
        if alive and now > self._restart_until:
            self._restart_until = now + RESTART_WITHIN_S
            self.notify("The worker is running. Press R again to restart it.", severity="warning")
            return
        feed.restarted()
        self._painter.paint()
        await feed.link.restart()
