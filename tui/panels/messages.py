"""The requests of panels to the app."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from textual.message import Message
from textual.widget import Widget

from decodescope.tui.model.picks import GapFilter, Pick


@dataclass
class PageRequest(Message):
    """A request that changes no run and no file: what is selected, and the `page` that is shown
    then, "" for the same."""

    page: str = field(default="", kw_only=True)


@dataclass
class Choose(PageRequest):
    """Select `pick`, None selects nothing."""

    pick: Pick | None


@dataclass
class Narrow(PageRequest):
    """Show only what is inside the range `path`; None is everything."""

    path: str | None


@dataclass
class Sift(PageRequest):
    """List only these gaps."""

    gaps: GapFilter


@dataclass
class ChooseStep(PageRequest):
    """Show the figures of the step with this index on every page, None those of the median step."""

    step: int | None


@dataclass
class GoTo(Message):
    """Go to this time of a replay."""

    t_ns: int


@dataclass
class AskFile(Message):
    """A request of page 8: list the folder of the path field, which says `text` now; the cursor is
    on `path`; mark `path` to be opened together with others, or unmark it; open `path`, with all
    others that are marked if it is (a folder is listed); open the file that `text` names; show the
    worker again, which is paused behind a file."""

    do: Literal["browse", "point", "mark", "open", "open_typed", "back_to_live"]
    path: Path = Path()
    text: str = ""


@dataclass
class PanelChanged(Message):
    """The `panel` takes other keys, or wants another number of rows (`Panel.wanted_rows`) and is
    not drawn yet."""

    panel: Widget


@dataclass
class AskComparison(Message):
    """A request of the comparison page: measure the chosen candidates, cancel that, choose or drop
    the candidate `name`, measure `by` more rounds, show the side `name` in detail, name a file to
    compare with, end the live worker to free its memory."""

    do: Literal["start", "cancel", "toggle", "rounds", "side", "file", "end_worker"]
    name: str = ""
    by: int = 0
