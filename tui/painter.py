"""Decides when to paint: at most every quarter of a second, and only after a change.

After a key, its answer may come from a worker or a file: what changes then is painted soon. At
rest, once a second, only ages change; while the view is frozen, nothing does.
"""

import math
from dataclasses import replace
from time import monotonic

from textual.timer import Timer

from decodescope.tui.model.feed import Feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.view import View
from decodescope.tui.screens.main import MainScreen

PAINT_INTERVAL_S = 0.25
ANSWER_INTERVAL_S, ANSWERS_WITHIN_S = 0.03, 0.5
AGE_INTERVAL_S = 1.0
# A key that comes meanwhile would wait for a mount: it begins after a pause.
MOUNT_INTERVAL_S, MOUNT_AFTER_S = 0.03, 0.5


class Painter:
    """Passes the feed's view to the screen; `freeze` keeps it."""

    def __init__(self, screen: MainScreen, feed: Feed, focus: Focus) -> None:
        self.screen = screen
        self._feed = feed
        self._focus = focus
        self._frozen: View | None = None
        self._due: Timer | None = None
        self._answers_until = self._busy_s = -math.inf

    def begin(self) -> None:
        self._ages = self.screen.set_interval(AGE_INTERVAL_S, self.paint)

    def mount_ahead(self) -> None:
        """Mount the panels of every page before it is shown: one panel at a time, while for
        `MOUNT_AFTER_S` no key was pressed and no window was analysed. It ends with the screen."""
        self._mounts = self.screen.set_interval(MOUNT_INTERVAL_S, self._mount_next)

    @property
    def frozen(self) -> bool:
        return self._frozen is not None

    def shown(self) -> View:
        """The view on the screen."""
        return self._focus.applied(self._frozen or self._feed.view())

    def follow(self, feed: Feed) -> None:
        self._feed = feed
        self.thaw()

    def freeze(self) -> None:
        self._ages.pause()
        self._frozen = replace(self._feed.view(), frozen=True)
        self.screen.show(self.shown())

    def thaw(self) -> None:
        self._frozen = None
        self._ages.resume()
        self.paint()

    def changed(self, feed: Feed) -> None:
        """Paint `feed` soon, if it is shown."""
        if feed is self._feed:
            self.soon()

    def soon(self) -> None:
        """Paint soon, together with what else changes until then."""
        if self._due is None:
            answer = monotonic() < self._answers_until
            interval_s = ANSWER_INTERVAL_S if answer else PAINT_INTERVAL_S
            self._due = self.screen.set_timer(interval_s, self.paint)

    def acted(self) -> None:
        now_s = monotonic()
        if self._due is not None and now_s > self._answers_until:
            self._due.stop()
            self._due = self.screen.set_timer(ANSWER_INTERVAL_S, self.paint)
        self._answers_until = now_s + ANSWERS_WITHIN_S
        self._busy_s = now_s

    def paint(self) -> None:
        if self._due is not None:
            self._due.stop()
            self._due = None
        if (still := self._frozen) is not None:
            view = self._feed.view()
            self._frozen = replace(
                still,
                state=view.state,
                detail=view.detail,
                died=view.died,
                banner=view.banner,
                preview=still.preview and view.preview,
            )
        self.screen.show(self.shown())

    def _mount_next(self) -> None:
        if self._feed.windows.analysing:
            self._busy_s = monotonic()
        elif monotonic() > self._busy_s + MOUNT_AFTER_S and not self.screen.mount_ahead():
            self._mounts.stop()
