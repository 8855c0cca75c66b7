"""What panels ask the app for."""

from dataclasses import dataclass

from textual.message import Message

from decodescope.tui.model.picks import Pick


@dataclass
class Choose(Message):
    """Select `pick`, None selects nothing."""

    pick: Pick | None


@dataclass
class Narrow(Message):
    """Show only what is inside the range `path`; None is everything."""

    path: str | None


@dataclass
class Turn(Message):
    """Show the page with this name."""

    page: str


@dataclass
class GoTo(Message):
    """Go to this time of a replay."""

    t_ns: int


@dataclass
class Resized(Message):
    """The panel wants another number of rows (`Panel.wanted_rows`)."""
