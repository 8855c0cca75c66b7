"""The requests of panels to the app."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual.message import Message
from textual.widget import Widget

from decodescope.tui.model.picks import GapFilter, Pick


class PageRequest(Message):
    """A request that changes no run and no file: what is selected, and which page is shown."""


class FileRequest(Message):
    """A request of page 8: find and open files, or show the worker again."""


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
class Turn(PageRequest):
    """Show the page with this name."""

    page: str


@dataclass
class GoTo(Message):
    """Go to this time of a replay."""

    t_ns: int


@dataclass
class Browse(FileRequest):
    """The path field says `text` now."""

    text: str


@dataclass
class Complete(FileRequest):
    """Complete what the path field says."""


@dataclass
class Point(FileRequest):
    """The cursor is on the file or folder `path`."""

    path: Path


@dataclass
class MarkFile(FileRequest):
    """Mark the file `path` to be opened together with others, or no longer."""

    path: Path


@dataclass
class OpenPaths(FileRequest):
    """Show this file, with all others that are marked if it is; a folder is listed."""

    path: Path


@dataclass
class OpenTyped(FileRequest):
    """Show the file that the path field names."""

    text: str


@dataclass
class BackToLive(FileRequest):
    """Show the worker again, which is paused behind a file."""


@dataclass
class Resized(Message):
    """The `panel` wants another number of rows (`Panel.wanted_rows`), and is not drawn yet."""

    panel: Widget


@dataclass
class AskComparison(Message):
    """A request of the comparison page: measure the chosen candidates, cancel that, choose or drop
    the candidate `name`, measure `by` more rounds, show the side `name` in detail, name a file to
    compare with, end the live worker to free its memory."""

    do: Literal["start", "cancel", "toggle", "rounds", "side", "file", "end_worker"]
    name: str = ""
    by: int = 0
