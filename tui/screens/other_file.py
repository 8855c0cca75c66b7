"""The dialog that names a file to compare with."""

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static
from textual.widgets.option_list import Option

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.screens.dialogs import Choices, Dialog, framed
from decodescope.tui.screens.fields import CompletingInput, Completion, files_in


class OtherFileScreen(Dialog[Path]):
    """Returns a path, None if cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._recordings = bundled_recordings()

    def compose(self) -> ComposeResult:
        hint = "enter compares · tab completes · esc"
        with framed(Vertical(), "Compare with", hint):
            yield Choices(*(Option(Content(plain_line(path.name))) for path in self._recordings))
            about = "a trace, a recording, or what compare --json wrote"
            yield CompletingInput(Completion(files_in(Path())), placeholder=about)
            yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Choices.OptionSelected)
    def _listed(self, event: Choices.OptionSelected) -> None:
        self.close(self._recordings[event.option_index])

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
