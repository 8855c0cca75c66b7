"""Lists of Textual's that can be asked for a page where there is no room for a line.

A list without room has laid out no lines, and `OptionList` looks for the current one among them.
"""

from textual.command import CommandList, CommandPalette
from textual.widgets import OptionList


class Choices(OptionList):
    """An option list whose page keys do nothing without room."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ("page_up", "page_down") or bool(self.scrollable_content_region)


class Palette(CommandPalette):
    """The command palette, whose keys for the list do nothing where the list has no room."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "command_list":
            return True
        return bool(self.query_one(CommandList).scrollable_content_region)
