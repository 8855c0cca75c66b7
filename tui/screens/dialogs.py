"""The base of dialogs, and the small ones, which choose a variant, a time or a file."""

from pathlib import Path
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from decodescope.analyzer.text.formatting import position
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import CHOICE_KEYS
from decodescope.tui.link.base import Playback
from decodescope.tui.model.replaying import typed_time_ns
from decodescope.tui.model.view import Choice
from decodescope.tui.panels.prompt import CompletingInput, Completion

_FIELDS = "Input, TextArea, Button"
Result = TypeVar("Result")
Frame = TypeVar("Frame", bound=Widget)


def framed(widget: Frame, title: str, hint: str) -> Frame:
    widget.add_class("box")
    widget.border_title, widget.border_subtitle = title, hint
    return widget


class Dialog(ModalScreen[Result | None]):
    """Subclasses make a frame (`framed`); escape closes it without a result."""

    CSS_PATH = "dialogs.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close"),
        Binding("tab", "field(1)", "Next field", show=False),
        Binding("shift+tab", "field(-1)", "Previous field", show=False),
    ]

    def action_field(self, by: int) -> None:
        """Go to the next field, or the one before; lists are no fields."""
        if any(field in self.focus_chain for field in self.query(_FIELDS)):
            move = self.focus_next if by > 0 else self.focus_previous
            move(_FIELDS)

    def close(self, result: Result | None = None) -> None:
        """Close with a result. A second key that arrives while it closes does nothing."""
        if self.is_active:
            self.dismiss(result)

    def action_close(self) -> None:
        self.close()

    def _say(self, problem: str) -> None:
        self.query_one(".problem", Static).update(plain_line(problem))


# Textual divides by the width of an option.
_LEAST_CELLS = 4


class Choices(OptionList):
    """An option list that can be laid out in no cells; its page keys then do nothing."""

    def __init__(self, *options: Option) -> None:
        super().__init__(*options, compact=True, markup=False)

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


class VariantsScreen(Dialog[int]):
    """Returns the index of the chosen one, None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"choose({index})", f"Choose number {key}")
        for index, key in enumerate(CHOICE_KEYS)
    ]

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
        yield framed(Choices(*options), self._title, "a number or enter chooses · esc")

    def on_mount(self) -> None:
        self.query_one(Choices).highlighted = max(self._current, 0)

    def action_choose(self, index: int) -> None:
        if index < len(self._choices) and self._choices[index].unavailable is None:
            self.close(index)

    @on(Choices.OptionSelected)
    def _chosen(self, event: Choices.OptionSelected) -> None:
        self.close(event.option_index)


_HINT = "90, 1:30, 1:02:03 or 50 %"


class SeekScreen(Dialog[int]):
    """Returns the time in ns, None if cancelled. A text that is no time stays to be corrected."""

    def __init__(self, playback: Playback) -> None:
        super().__init__()
        self._playback = playback

    def compose(self) -> ComposeResult:
        title = f"Go to a time, up to {position(self._playback.duration_ns)}"
        yield framed(Input(placeholder=_HINT), title, "enter goes there \u00b7 esc")

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        t_ns = typed_time_ns(event.value, self._playback)
        if t_ns is not None:
            self.close(t_ns)
        else:
            event.input.border_subtitle = f"not a time: {_HINT}"


class OtherFileScreen(Dialog[Path]):
    """Returns a path, None if cancelled."""

    def compose(self) -> ComposeResult:
        hint = "enter compares · tab completes · esc"
        with framed(Vertical(), "Compare with", hint):
            about = "a trace, a recording, or what compare --json wrote"
            yield CompletingInput(Completion("files"), placeholder=about)
            yield Static(classes="problem", markup=False)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        path = Path(text).expanduser()
        if not text:
            self._say("name a file")
        elif path.is_dir():
            self._say(f"{text}: is a folder; name a file in it")
        elif not path.exists():
            self._say(f"{text}: no such file")
        else:
            self.close(path)
