"""Windows of real runs, from the bundled recordings, for tests of pages."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.background import analyse_files
from decodescope.tui.model.picks import Selection
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Empty
from decodescope.tui.style.palette import ASCII, UNICODE, Inks, themed_inks
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import StillClock, settle

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]
BRUSHES = [
    Brush(themed_inks({}, True), UNICODE, "box"),
    Brush(themed_inks({}, False, few_colors=True), UNICODE, "rule"),
    Brush(Inks(), ASCII, "rule"),
]


def write_window(folder: Path, variant: str) -> Path:
    """The last window of the bundled recording of `variant`, as a trace file."""
    (path,) = (one for one in bundled_recordings() if one.stem.endswith(f"-1b-{variant}"))
    file = folder / f"{variant}.json.gz"
    file.write_bytes(read_recording(path).last_packed_traces()[0])
    return file


@cache
def window(variant: str) -> Window:
    """The same, analysed."""
    with TemporaryDirectory() as folder:
        return analyse_files([write_window(Path(folder), variant)], 0.0)


def view_of(shown: Window | None, selection: Selection | None = None) -> View:
    return View("trace", "trace", window=shown, selection=selection or Selection())


def drawn(kind: type[Panel], view: View, brush: Brush, width: int, height: int) -> list[str]:
    """The lines that a panel draws of `view`, none wider than `width`, no more than `height`."""
    panel = kind(brush, view)
    data = panel.pick(view)
    if isinstance(data, Empty):
        return [data.hint]
    sheet = panel.draw(data, width, height)
    return ["".join(segment.text for segment in row.segments) for row in sheet.rows]


def app_of(path: Path, traits: TerminalTraits | None = None) -> DecodescopeApp:
    """The app over a trace file."""
    return DecodescopeApp(TraceSource((path,)), traits, StillClock(), path.parent)


async def press(pilot, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def before_picture(*keys: str) -> Callable:
    """What happens before a snapshot: the file is analysed, and these keys are pressed."""

    async def act(pilot) -> None:
        await settle(pilot)
        await press(pilot, *keys)

    return act
