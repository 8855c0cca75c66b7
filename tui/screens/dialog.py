"""The base of dialogs."""

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Result = TypeVar("Result")


class Dialog(ModalScreen[Result | None]):
    """A frame of the class `box`, which subclasses make; escape closes it without a result."""

    DEFAULT_CSS = "Dialog { align: center middle; }"
    CSS = """
    .box {
        max-width: 96%; height: auto; max-height: 96%; padding: 0 1;
        background: $surface; border: round $primary; border-title-color: $primary;
        border-subtitle-color: $foreground-muted;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def close(self, result: Result | None = None) -> None:
        """Close with a result. A second key that arrives while it closes does nothing."""
        if self.is_active:
            self.dismiss(result)

    def action_close(self) -> None:
        """Close without a result."""
        self.close()
