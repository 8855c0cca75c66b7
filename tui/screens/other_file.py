"""The dialog that names a file to compare with."""

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from decodescope.tui.panels.fields import CompletingInput, Completion
from decodescope.tui.screens.dialogs import Dialog, framed


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
