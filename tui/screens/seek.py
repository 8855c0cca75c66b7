"""Asks for a time of a replay."""

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input

from decodescope.analyzer.text.formatting import position
from decodescope.tui.link.base import Playback
from decodescope.tui.model.replaying import typed_time_ns
from decodescope.tui.screens.dialog import Dialog

_HINT = "90, 1:30, 1:02:03 or 50 %"


class SeekScreen(Dialog[int]):
    """Returns the time in ns, None if cancelled. A text that is no time stays to be corrected."""

    CSS = (
        Dialog.CSS
        + """
    .box { width: 44; padding: 0 2; }
    """
    )

    def __init__(self, playback: Playback) -> None:
        super().__init__()
        self._playback = playback

    def compose(self) -> ComposeResult:
        field = Input(placeholder=_HINT, classes="box")
        field.border_title = f"Go to a time, up to {position(self._playback.duration_ns)}"
        field.border_subtitle = "enter goes there \u00b7 esc"
        yield field

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        t_ns = typed_time_ns(event.value, self._playback)
        if t_ns is not None:
            self.close(t_ns)
        else:
            event.input.border_subtitle = f"not a time: {_HINT}"
