"""The focus of the user: the page, the selection, and the window that it belongs to."""

from dataclasses import dataclass, replace

from decodescope.analyzer.reports.user_facts import Given
from decodescope.tui.model.comparing import NO_COMPARISON, ComparisonState
from decodescope.tui.model.picks import NOTHING, OF_ONE_WINDOW, GapFilter, Pick, Selection
from decodescope.tui.model.shelf import NO_FILES, Shelf
from decodescope.tui.model.view import View, Window


@dataclass(slots=True, eq=False)
class Focus:
    """Applied to each view before it is shown.

    A pick of a row or a time, and a chosen step, hold their window: later ones are not shown until
    they are cleared or the choice changes. Other picks are names, which later windows have too.
    """

    page: str
    selection: Selection = NOTHING
    shelf: Shelf = NO_FILES
    comparison: ComparisonState = NO_COMPARISON
    _held: Window | None = None
    _of_step: Window | None = None
    _choice: int = -1

    @property
    def holds(self) -> bool:
        """Whether what is chosen belongs to one window."""
        return self._held is not None or self._of_step is not None

    def choose(self, pick: Pick | None, view: View) -> None:
        self.selection = replace(self.selection, pick=pick)
        holds = isinstance(pick, OF_ONE_WINDOW) and view.window is not None
        self._held = view.window.whole if holds and view.window else None
        self._choice = view.current

    def choose_step(self, window: Window | None, view: View) -> None:
        """Show the figures of one step, which `window` has; None is the median step. What was
        selected in another step is no longer."""
        if isinstance(self.selection.pick, OF_ONE_WINDOW):
            self.choose(None, view)
        self._of_step, self._choice = window, view.current

    def name_model(self, given: Given) -> None:
        """Judge the window that is held by the model that is given. A step must be chosen again."""
        self._of_step = None
        if self._held is not None:
            self._held = self._held.with_model(given)

    def narrow(self, path: str | None) -> None:
        self.selection = replace(self.selection, within=path)

    def sift(self, gaps: GapFilter) -> None:
        self.selection = replace(self.selection, gaps=gaps)

    def clear(self, view: View) -> None:
        if self.selection.pick is not None:
            self.choose(None, view)
        elif self.selection.gaps != NOTHING.gaps:
            self.sift(NOTHING.gaps)
        elif self.selection.within is not None:
            self.narrow(None)
        else:
            self._of_step = None

    def forget(self) -> None:
        self.selection, self._held, self._of_step = NOTHING, None, None

    def applied(self, view: View) -> View:
        if view.current != self._choice:
            if self._held is not None:
                self.choose(None, view)
            self._of_step = None
        window = self._of_step or self._held or view.window
        held = window is not None and window.whole is not view.window
        return replace(
            view,
            page=self.page,
            selection=self.selection,
            window=window,
            held=held,
            shelf=self.shelf,
            comparison=self.comparison,
        )
