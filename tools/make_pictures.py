"""Draws the pictures in the documents: every page of the app, headless, over a bundled recording.

The same code draws the same bytes: a replay stops at its last window, and the SVG names no font,
host, path or version.
"""

import argparse
import asyncio
import re
import sys
from pathlib import Path

from textual.pilot import Pilot

from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.output_paths import make_folder
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Jumped, LinkEvent
from decodescope.tui.link.replay import ReplayLink
from decodescope.tui.model.feed import ReplaySource
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.painter import PAINT_INTERVAL_S

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZE = (120, 36)
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# What is pressed before the picture of a page is taken.
KEYS: dict[str, tuple[str, ...]] = {
    "timeline": ("G",),
    "kernels": ("down",),
    "gaps": ("tab", "down"),
    "ranges": ("l", "down", "down"),
}


class WatchedReplay(ReplayLink):
    """Says when the recording's last window was delivered, where a replay stops at first."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.delivered = asyncio.Event()

    async def receive(self) -> LinkEvent | None:
        if (event := await super().receive()) and isinstance(event, Jumped):
            self.delivered.set()
        return event


async def draw(recording: Path, page: str, size: tuple[int, int] = SIZE) -> str:
    """A page of the app as SVG, at the last window of `recording`."""
    link = WatchedReplay(recording)
    app = DecodescopeApp(ReplaySource(recording, link), page=page)
    async with app.run_test(size=size) as pilot:
        await link.delivered.wait()
        await _settled(app, pilot)
        await pilot.press(*KEYS.get(page, ()))
        await _settled(app, pilot)
        return portable(app.export_screenshot(title="decodescope", simplify=True))


async def _settled(app: DecodescopeApp, pilot: Pilot[None]) -> None:
    """Wait until nothing is analysed and the last change is painted."""
    await pilot.pause()
    while analyses := [worker for worker in app.workers if worker.name == "analysis"]:
        await app.workers.wait_for_complete(analyses)
        await pilot.pause()
    await pilot.pause(2 * PAINT_INTERVAL_S)


def portable(svg: str) -> str:
    """`svg` without web fonts, without the generator's comment, and with fixed ids."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = re.sub(r"font-family: [^;]*;", f"font-family: {FONTS};", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip() + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", default=[page.name for page in PAGES])
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    (eager,) = (path for path in bundled_recordings() if "eager" in path.name)
    make_folder(arguments.output, "-o")
    for page in arguments.pages:
        picture = asyncio.run(draw(eager, page)).encode()
        write_atomically(arguments.output / f"{page}.svg", picture)
        sys.stderr.write(f"{page}.svg: {len(picture):,} bytes\n")


if __name__ == "__main__":
    main()
