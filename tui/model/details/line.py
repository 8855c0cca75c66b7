"""One line of the details pane."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DetailLine:
    """A label and a text of any length; without a label the text starts at the left edge."""

    label: str
    text: str
    tone: Literal["strong", "text", "dim", "good", "warn", "bad"] = "text"
