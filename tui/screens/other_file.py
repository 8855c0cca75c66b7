"""The dialog that names a file to compare with."""

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.screens.dialog import Dialog


class OtherFileScreen(Dialog[Path]):
    """Returns a path, None if cancelled."""

    CSS = (
        Dialog.CSS
        + """
    .box { width: 76; }
    OtherFileScreen OptionList {
        height: auto; max-height: 10; border: none; background: $surface;
    }
    OtherFileScreen Input {
        border: none; height: 1; padding: 0 1; background: $panel; margin: 1 0 0 0;
    }
    OtherFileScreen Static { height: auto; padding: 0 1; }
    """
    )

    def __init__(self) -> None:
        super().__init__()
        self._recordings = bundled_recordings()

    def compose(self) -> ComposeResult:
        box = Vertical(classes="box")
        box.border_title, box.border_subtitle = "Compare with", "enter compares · esc"
        with box:
            names = [Option(Content(plain_line(path.name))) for path in self._recordings]
            yield OptionList(*names, compact=True, markup=False)
            yield Input(placeholder="a trace, a recording, or what compare --json wrote")
            yield Static("", id="problem", markup=False)

    def on_mount(self) -> None:
        """The path is what most need."""
        self.query_one(Input).focus()

    @on(OptionList.OptionSelected)
    def _listed(self, event: OptionList.OptionSelected) -> None:
        self.close(self._recordings[event.option_index])

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        path = Path(text).expanduser()
        if not text:
            problem = "name a file"
        elif path.is_dir():
            problem = f"{plain_line(text)}: is a folder; name a file in it"
        elif not path.exists():
            problem = f"{plain_line(text)}: no such file"
        else:
            self.close(path)
            return
        self.query_one("#problem", Static).update(problem)
