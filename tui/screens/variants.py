"""The list of variants, or of opened files: a number, or arrows and enter, chooses one."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets.option_list import Option

from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import CHOICE_KEYS
from decodescope.tui.model.view import Choice
from decodescope.tui.screens.dialog import Choices, Dialog


class VariantsScreen(Dialog[int]):
    """Returns the index of the chosen one, None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"choose({index})", f"Choose number {key}")
        for index, key in enumerate(CHOICE_KEYS)
    ]
    CSS = (
        Dialog.CSS
        + """
    .box { width: 76; }
    """
    )

    def __init__(self, title: str, choices: tuple[Choice, ...], current: int) -> None:
        super().__init__()
        self._title = title
        self._choices = choices
        self._current = current

    def compose(self) -> ComposeResult:
        names = max((len(choice.name) for choice in self._choices), default=0)
        options = []
        for index, choice in enumerate(self._choices):
            key = CHOICE_KEYS[index] if index < len(CHOICE_KEYS) else " "
            about = choice.unavailable or choice.summary
            text = f"{key} {plain_line(choice.name):<{names}}  {plain_line(about)}"
            options.append(Option(Content(text), disabled=choice.unavailable is not None))
        choices = Choices(*options, compact=True, markup=False, classes="box")
        choices.border_title = self._title
        choices.border_subtitle = "a number or enter chooses · esc"
        yield choices

    def on_mount(self) -> None:
        """Begin at the current one."""
        self.query_one(Choices).highlighted = max(self._current, 0)

    def action_choose(self, index: int) -> None:
        """Choose a number."""
        if index < len(self._choices) and self._choices[index].unavailable is None:
            self.close(index)

    @on(Choices.OptionSelected)
    def _chosen(self, event: Choices.OptionSelected) -> None:
        self.close(event.option_index)
