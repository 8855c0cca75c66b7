"""The base of dialogs, and lists that can be asked for a page where there is no room for a line."""

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import OptionList

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


# Textual divides by the width of an option.
_LEAST_CELLS = 4


class Choices(OptionList):
    """An option list whose page keys do nothing without room, and whose options can be laid out in
    no cells."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return super().get_content_height(container, viewport, max(width, _LEAST_CELLS))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ("page_up", "page_down") or bool(self.scrollable_content_region)


class Palette(CommandPalette):
    """The command palette, whose keys for the list do nothing where the list has no room."""

    CSS = "Palette CommandList { min-width: 12; }"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "command_list":
            return True
        return bool(self.query_one(CommandList).scrollable_content_region)
