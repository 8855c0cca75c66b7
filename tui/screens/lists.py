"""Lists of Textual's that can be asked for a page where there is no room for a line.

A list without room has laid out no lines, and `OptionList` looks for the current one among them.
"""

from textual.command import CommandList, CommandPalette
from textual.geometry import Size
from textual.widgets import OptionList

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
