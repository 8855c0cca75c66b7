"""Actions on a replay: seek, and change its speed."""

from typing import Literal

from decodescope.analyzer.recordings.recording import Mark
from decodescope.tui.actions.parts import AppParts
from decodescope.tui.link.base import NEWEST_NS, Seek, Speed
from decodescope.tui.model.replaying import neighbour, next_speed
from decodescope.tui.panels.messages import GoTo


class ReplayActions(AppParts):
    """They do nothing without a replay."""

    async def action_seek_mark(self, kind: Literal["window", "switch"], forward: bool) -> None:
        """Go to the next or previous window, or change of variant, of a replay."""
        if (playback := self._feed.view().playback) is not None:
            mark = neighbour(playback, kind, forward)
            if mark is None:
                what = "window" if kind == "window" else "change of variant"
                self.notify(f"There is no {what} {'after' if forward else 'before'} this moment.")
            await self._seek(mark)

    async def action_speed(self, steps: int) -> None:
        """Play faster or slower."""
        if (playback := self._feed.view().playback) is not None:
            await self._feed.send(Speed(next_speed(playback.speed, steps)))
            self._painter.paint()

    async def action_follow(self) -> None:
        """Go to the newest moment of a recording that is being written, and stay there."""
        playback = self._feed.view().playback
        if playback is None or not playback.growing:
            self.notify("Nothing is being recorded here.", severity="warning")
        else:
            await self._seek_to(NEWEST_NS)

    def action_seek_time(self) -> None:
        """Go to a time of a replay."""
        from decodescope.tui.screens.seek import SeekScreen

        if (playback := self._feed.view().playback) is not None:
            self.push_screen(SeekScreen(playback), self._seek_to)

    async def on_go_to(self, message: GoTo) -> None:
        """A panel leads to another moment of a replay."""
        await self._seek_to(message.t_ns)

    async def _seek_to(self, t_ns: int | None) -> None:
        if t_ns is not None:
            await self._feed.send(Seek(t_ns))
            self._painter.changed(self._feed)

    async def _seek(self, mark: Mark | None) -> None:
        await self._seek_to(mark.t_ns if mark is not None else None)
