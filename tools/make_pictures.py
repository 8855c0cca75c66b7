"""Draws the pictures in the documents: pages of the app, headless, over bundled recordings.

The same code draws the same bytes: a replay stops at its last window, and the SVG names no font,
host, path or version.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot
from textual.widgets import Input

from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.io.output_paths import make_folder
from decodescope.analyzer.recordings.bundled import bundled_variants
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Jumped, LinkEvent
from decodescope.tui.link.replay import ReplayLink
from decodescope.tui.model.sources import ReplaySource
from decodescope.tui.model.view import COMPARISON_PAGE
from decodescope.tui.pages.all_pages import PAGES

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
# Page 8 names the folder that it shows. Each run has one of its own, with a name as long as this.
SHOWN_FOLDER = Path("/tmp/decodescope-pictures")
_SHOWN_AT = 1_767_323_045
SIZE = (120, 36)
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True, slots=True)
class Picture:
    """A page over the recording of `variant`, after `keys`; page 7 compares it with `other`."""

    page: str
    variant: str = "eager"
    other: str = "fused+graph"
    keys: tuple[str, ...] = ()


_KEYS: dict[str, tuple[str, ...]] = {
    "timeline": ("G",),
    "kernels": ("down",),
    "gaps": ("tab", "down"),
    "ranges": ("z", "down", "down"),
}
# Every page, and those that the guide shows of other variants.
PICTURES: dict[str, Picture] = {
    page.name: Picture(page.name, keys=_KEYS.get(page.name, ())) for page in PAGES
} | {
    "guide-compiled": Picture("step", "compiled"),
    "guide-compiled-kernels": Picture("kernels", "compiled"),
    "guide-eager": Picture("step", "eager"),
    "guide-fused": Picture("step", "fused"),
    "guide-fused-graph": Picture("step", "fused+graph"),
    "guide-fp8": Picture("step", "fused+graph+fp8_e4m3"),
    "guide-ab": Picture("ab", "compiled", "fused+graph+fp8_e4m3"),
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


@contextmanager
def shown_folder() -> Iterator[Path]:
    """A folder with two traces of a fixed time."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with TemporaryDirectory(dir=SHOWN_FOLDER.parent, prefix="decodescope-") as name:
        assert len(name) == len(str(SHOWN_FOLDER))
        for trace in sorted((ROOT / "tests" / "data").glob("h200_compiled_[cr]*.json.gz")):
            shown = Path(shutil.copyfile(trace, Path(name, trace.name)))
            os.utime(shown, (_SHOWN_AT, _SHOWN_AT))
        yield Path(name)


async def draw(picture: Picture, folder: Path) -> str:
    """A picture as SVG, at the last window of its recording; page 8 shows `folder`."""
    path = recording_of(picture.variant)
    link = WatchedReplay(path)
    app = DecodescopeApp(ReplaySource(path, link), folder=folder, page=picture.page)
    async with app.run_test(size=SIZE) as pilot:
        await link.delivered.wait()
        await _settled(app, pilot)
        if picture.page == COMPARISON_PAGE:
            await pilot.press("d")
            await pilot.pause()
            app.screen.query_one(Input).value = str(recording_of(picture.other))
            await pilot.press("enter")
            await _settled(app, pilot)
        await pilot.press(*picture.keys)
        await _settled(app, pilot)
        svg = app.export_screenshot(title="decodescope", simplify=True)
        return portable(svg.replace(str(folder), str(SHOWN_FOLDER)))


def recording_of(variant: str) -> Path:
    """The bundled recording of a variant."""
    return bundled_variants()[variant][0]


async def _settled(app: DecodescopeApp, pilot: Pilot[None]) -> None:
    """Wait until nothing is read or analysed, and paint."""
    await pilot.pause()
    while busy := [worker for worker in app.workers if worker.name != "link"]:
        await app.workers.wait_for_complete(busy)
        await pilot.pause()
    app.paint()
    await pilot.pause()


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
    parser.add_argument("pictures", nargs="*", default=list(PICTURES))
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.pictures if name not in PICTURES]:
        parser.error(f"{unknown[0]}: no such picture; there are {', '.join(PICTURES)}")
    make_folder(arguments.output, "-o")
    with shown_folder() as folder:
        for name in arguments.pictures:
            svg = asyncio.run(draw(PICTURES[name], folder)).encode()
            write_atomically(arguments.output / f"{name}.svg", svg)
            sys.stderr.write(f"{name}.svg: {len(svg):,} bytes\n")


if __name__ == "__main__":
    main()
