"""Draws the picture in the README: the app, headless, at one moment of a bundled recording.

The same code draws the same bytes: a replay shows the recorded time, and the SVG names no font,
host, path or version.
"""

import argparse
import asyncio
import re
import sys
from pathlib import Path

from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.output_paths import check_writable, output_path
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Jumped, LinkEvent
from decodescope.tui.link.replay import ReplayLink
from decodescope.tui.model.feed import ReplaySource
from decodescope.tui.painter import PAINT_INTERVAL_S

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "app.svg"
SIZE = (120, 36)
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class WatchedReplay(ReplayLink):
    """Says when the recording's last window was delivered, where a replay stops at first."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.delivered = asyncio.Event()

    async def receive(self) -> LinkEvent | None:
        if (event := await super().receive()) and isinstance(event, Jumped):
            self.delivered.set()
        return event


async def draw(recording: Path, size: tuple[int, int] = SIZE) -> str:
    """The app's screen as SVG, at the last window of `recording`."""
    link = WatchedReplay(recording)
    app = DecodescopeApp(ReplaySource(recording, link))
    async with app.run_test(size=size) as pilot:
        await link.delivered.wait()
        await pilot.pause()
        while analyses := [worker for worker in app.workers if worker.name == "analysis"]:
            await app.workers.wait_for_complete(analyses)
            await pilot.pause()
        await pilot.pause(2 * PAINT_INTERVAL_S)
        return portable(app.export_screenshot(title="decodescope", simplify=True))


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
    parser.add_argument("-o", "--output", type=output_path, default=PICTURE)
    arguments = parser.parse_args()
    (eager,) = (path for path in bundled_recordings() if "eager" in path.name)
    check_writable(arguments.output, "-o")
    picture = asyncio.run(draw(eager)).encode()
    write_atomically(arguments.output, picture)
    sys.stderr.write(f"{arguments.output}: {len(picture):,} bytes\n")


if __name__ == "__main__":
    main()
