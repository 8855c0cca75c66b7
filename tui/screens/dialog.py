"""The base of dialogs."""

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Result = TypeVar("Result")


class Dialog(ModalScreen[Result | None]):
    """Escape closes it without a result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def close(self, result: Result | None = None) -> None:
        """Close with a result. A second key that arrives while it closes does nothing."""
        if self.is_active:
            self.dismiss(result)

    def action_close(self) -> None:
        """Close without a result."""
        self.close()
