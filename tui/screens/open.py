"""The dialog to open a bundled recording or a path, or to return to the live worker."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from decodescope.analyzer.plain import plain_line

BACK_TO_LIVE = "live"


class OpenScreen(ModalScreen[Path | str | None]):
    """Returns a path, `BACK_TO_LIVE` (offered if `live`), or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]
    CSS = """
    OpenScreen { align: center middle; }
    OpenScreen > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 96%; padding: 0 1;
        background: $surface; border: round $primary; border-title-color: $primary;
        border-subtitle-color: $foreground-muted;
    }
    OpenScreen OptionList { height: auto; max-height: 10; border: none; background: $surface; }
    OpenScreen Input { border: none; height: 1; padding: 0 1; background: $panel; margin: 1 0 0 0; }
    OpenScreen .problem { height: auto; color: $error; padding: 0 1; }
    OpenScreen .hint { height: auto; color: $foreground-muted; padding: 0 1; }
    """

    def __init__(self, recordings: tuple[Path, ...], live: bool) -> None:
        super().__init__()
        self._recordings = recordings
        self._live = live

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Open"
            box.border_subtitle = "enter opens · tab moves · esc cancels"
            options = [Option("Back to the live worker", id=BACK_TO_LIVE)] if self._live else []
            options += [Option(f"{path.stem}  (recorded GPU run)", id=str(path))
                        for path in self._recordings]  # fmt: skip
            if options:
                yield OptionList(*options, compact=True, markup=False)
            else:
                yield Static("No bundled recordings in this installation.", classes="hint")
            yield Input(placeholder="path of a .dsrec recording or a .json/.json.gz trace",
                        select_on_focus=False)  # fmt: skip
            yield Static("", classes="problem", markup=False)

    def on_mount(self) -> None:
        """Focus the list, or the input if there is no list."""
        lists = self.query(OptionList)
        (lists.first() if lists else self.query_one(Input)).focus()

    def action_cancel(self) -> None:
        """Close without a choice."""
        self.dismiss(None)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        assert event.option_id is not None
        chosen = event.option_id
        self.dismiss(chosen if chosen == BACK_TO_LIVE else Path(chosen))

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        path = Path(event.value.strip()).expanduser()
        if not event.value.strip() or not path.is_file():
            self.query_one(".problem", Static).update(plain_line(f"{path}: no such file"))
            return
        self.dismiss(path)
