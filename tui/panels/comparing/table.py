"""The base of the comparison page's tables: all have the page's keys."""

from collections.abc import Hashable

from decodescope.tui.commands import Command
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.table import TABLE_COMMANDS, TablePanel

COMPARISON_COMMANDS = (
    Command("start", "c", "Compare", "Measure the chosen variants in turn, or compare two files",
            "compare", 1),
    Command("cancel", "x", "Cancel", "End the comparison; the complete rounds stay", "cancel", 3),
    Command("rounds(1)", "plus,equals_sign", "More rounds", "One more round; intervals need three",
            "rounds", 4, "+"),
    Command("rounds(-1)", "minus", "Fewer rounds", "One round less", shown="-"),
    Command("other_file", "d", "Compare with a file",
            "Compare what is shown with a trace, or open a saved comparison", "diff file", 2),
    Command("end_worker", "E", "End the worker",
            "End the live worker, so that a comparison gets its memory; R starts it again"),
)  # fmt: skip


class ComparisonTable(TablePanel):
    """A table of the comparison page. Its rows are not of the window that other pages show, so they
    select nothing there."""

    COMMANDS = (*COMPARISON_COMMANDS, *(one for one in TABLE_COMMANDS if one.action != "enter"))

    def moved(self, key: Hashable) -> None:
        """Select nothing."""

    def action_start(self) -> None:
        """Compare the chosen candidates."""
        self.post_message(AskComparison("start"))

    def action_cancel(self) -> None:
        """Cancel the comparison."""
        self.post_message(AskComparison("cancel"))

    def action_rounds(self, by: int) -> None:
        """Measure more or fewer rounds."""
        self.post_message(AskComparison("rounds", by=by))

    def action_other_file(self) -> None:
        """Name a file to compare with."""
        self.post_message(AskComparison("file"))

    def action_end_worker(self) -> None:
        """End the live worker."""
        self.post_message(AskComparison("end_worker"))
