"""What the groups of the app's actions share."""

from decodescope.analyzer.protocol.messages import Settings
from decodescope.tui.actions.ordered_keys import OrderedKeys
from decodescope.tui.background import Background
from decodescope.tui.comparisons import Comparisons
from decodescope.tui.library import Library
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.view import Clock
from decodescope.tui.painter import Painter
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.palette import Inks


class AppParts(OrderedKeys):
    """The parts of the app; `_feed` is the source that is shown, `_live` the live worker's, None
    without one. `_asked` are the settings asked for last."""

    _feed: Feed
    _live: Feed | None
    _focus: Focus
    _clock: Clock
    _background: Background
    _comparisons: Comparisons
    _library: Library
    _main: MainScreen
    _painter: Painter
    _keys: dict[str, str]
    _asked: Settings | None

    def _show(self, feed: Feed) -> None:
        """Show a source."""
        raise NotImplementedError

    def _start_analysis(self) -> None:
        """Analyse the latest window, unless the view is frozen."""
        raise NotImplementedError

    def _select_file(self, index: int) -> None:
        """Show the trace file at `index`."""
        raise NotImplementedError

    def _inks(self) -> Inks:
        """The styles of the current theme."""
        raise NotImplementedError
