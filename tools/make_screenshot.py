"""Draws the picture in the README: the app, headless, at one moment of a bundled recording.

The same code draws the same bytes: the app's clock shows the recorded time, and the SVG names no
font, host, path or version.
"""

import argparse
import asyncio
import re
import sys
from datetime import datetime
from pathlib import Path

from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.output_paths import check_writable, output_path
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.replay import ReplayLink
from decodescope.tui.model.feed import ReplaySource
from decodescope.tui.model.view import Clock
from decodescope.tui.painter import PAINT_INTERVAL_S

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "app.svg"
SIZE = (120, 36)
BEFORE_END_S = 2.0
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class RecordedClock(Clock):
    """Shows the time of the message that was delivered last."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The recorded time in seconds."""
        return self.now

    def local(self) -> datetime:
        """A fixed time: nothing on the screen shows it."""
        return datetime(2026, 1, 1)


class ReplayUntil(ReplayLink):
    """Delivers a recording without waiting, sets the clock as it does, and stops at `until_s`."""

    def __init__(self, path: Path, until_s: float, recorded: RecordedClock) -> None:
        super().__init__(path)
        self._until_s = until_s
        self._recorded = recorded
        self.stopped = asyncio.Event()

    async def _due(self, t_ns: int) -> bool:
        if t_ns > self._until_s * 1e9:
            self._recorded.now = self._until_s
            self.stopped.set()
            await self._changed.wait()
            return False
        self._recorded.now = t_ns / 1e9
        return True


async def draw(recording: Path, size: tuple[int, int] = SIZE) -> str:
    """The app's screen as SVG, `BEFORE_END_S` before the end of `recording`."""
    clock = RecordedClock()
    end_s = read_recording(recording).duration_ns / 1e9
    link = ReplayUntil(recording, end_s - BEFORE_END_S, clock)
    app = DecodescopeApp(ReplaySource(recording, link), clock=clock)
    async with app.run_test(size=size) as pilot:
        await link.stopped.wait()
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
