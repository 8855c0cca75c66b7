"""The focus of the user: the page, the selection, and the window that it belongs to."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decodescope.tui.model.picks import NOTHING, OF_ONE_WINDOW, GapFilter, Pick, Selection
from decodescope.tui.model.shelf import NO_FILES, Shelf
from decodescope.tui.model.view import View, Window

if TYPE_CHECKING:
    from decodescope.analyzer import Given


@dataclass(slots=True, eq=False)
class Focus:
    """Applied to each view before it is shown.

    A pick of a row or a time holds its window: later ones are not shown until the pick is cleared
    or the choice changes. Other picks are names, which later windows have too.
    """

    page: str
    selection: Selection = NOTHING
    shelf: Shelf = NO_FILES
    _held: Window | None = None
    _choice: int = -1

    def choose(self, pick: Pick | None, view: View) -> None:
        self.selection = replace(self.selection, pick=pick)
        holds = isinstance(pick, OF_ONE_WINDOW)
        self._held, self._choice = (view.window, view.current) if holds else (None, -1)

    def name_model(self, given: "Given") -> None:
        """Judge the window that is held by the model that is given."""
        if self._held is not None:
            self._held = self._held.with_model(given)

    def narrow(self, path: str | None) -> None:
        """Show only what is inside the range `path`; None is everything."""
        self.selection = replace(self.selection, within=path)

    def sift(self, gaps: GapFilter) -> None:
        self.selection = replace(self.selection, gaps=gaps)

    def clear(self, view: View) -> None:
        """Drop the pick; if there is none, the filter of gaps; then the range around everything."""
        if self.selection.pick is not None:
            self.choose(None, view)
        elif self.selection.gaps != NOTHING.gaps:
            self.sift(NOTHING.gaps)
        else:
            self.narrow(None)

    def forget(self) -> None:
        self.selection, self._held, self._choice = NOTHING, None, -1

    def applied(self, view: View) -> View:
        if self._held is not None and view.current != self._choice:
            self.choose(None, view)
        window = self._held or view.window
        held = self._held is not None and self._held is not view.window
        return replace(
            view,
            page=self.page,
            selection=self.selection,
            window=window,
            held=held,
            shelf=self.shelf,
        )
