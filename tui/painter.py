"""When the screen is painted: at most every quarter of a second, and only after a change.

At rest nothing runs but the age, once a second, and not even that while the view is frozen.
"""

from dataclasses import replace

from textual.timer import Timer

from decodescope.tui.commands import key_hints
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.present import Moment
from decodescope.tui.model.session import View
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.traits import Clock

PAINT_INTERVAL_S = 0.25
AGE_INTERVAL_S = 1.0


class Painter:
    """Hands the feed's view to the main screen; `freeze` keeps showing the view of that moment."""

    def __init__(self, screen: MainScreen, clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._feed: Feed | None = None
        self._frozen: tuple[View, Moment] | None = None
        self._due: Timer | None = None
        self._ages = screen.set_interval(AGE_INTERVAL_S, self._paint_ages)

    @property
    def frozen(self) -> bool:
        """Whether the view stands still."""
        return self._frozen is not None

    def shown(self) -> tuple[View, Moment]:
        """The view on the screen, and the moment it is looked at."""
        assert self._feed is not None
        return self._frozen or (self._feed.view(), self._moment())

    def follow(self, feed: Feed) -> None:
        """Show `feed` from now on, not frozen."""
        self._feed = feed
        self._screen.set_banner(feed.banner)
        self.thaw()

    def freeze(self) -> None:
        """Stand still."""
        self._ages.pause()
        self._frozen = (self.shown()[0], replace(self._moment(), frozen=True))
        self._screen.show(*self._frozen)

    def thaw(self) -> None:
        """Go on with the latest view."""
        self._frozen = None
        self._ages.resume()
        self.paint()

    def changed(self, feed: Feed) -> None:
        """`feed` has something new: paint it soon, together with what comes until then."""
        if feed is self._feed and self._due is None:
            self._due = self._screen.set_timer(PAINT_INTERVAL_S, self.paint)

    def paint(self) -> None:
        """Paint now."""
        if self._due is not None:
            self._due.stop()
            self._due = None
        if self._feed is None:
            return
        self._screen.set_banner(self._feed.banner)
        view = self._feed.view()
        if self._frozen is not None:
            still, moment = self._frozen
            self._screen.show_title(
                replace(still, state=view.state, detail=view.detail, died=view.died), moment
            )
            return
        self._screen.show(view, self._moment())
        self._screen.set_keys(key_hints(view.kind, len(view.choices)))

    def _paint_ages(self) -> None:
        if self._feed is not None and self._frozen is None and self._due is None:
            self._screen.show_ages(self._feed.view(), self._moment())

    def _moment(self) -> Moment:
        paused = self._feed is not None and self._feed.replay_paused
        return Moment(self._clock.monotonic(), replay_paused=paused)
