"""The panels of pages that were not shown yet are mounted while no key is pressed."""

import asyncio
from pathlib import Path

from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.panel import Panel
from tests.helpers.scripted import settle, text_of, write_trace

SIZE = (120, 40)
ALL_KINDS = {kind for page in PAGES for kind in page.panels()}
MOST_WAIT_S = 30.0


def mounted(app: DecodescopeApp) -> set[type[Panel]]:
    return {type(panel) for panel in app.screen.query(Panel)}


def shown(app: DecodescopeApp) -> set[type[Panel]]:
    return {type(panel) for panel in app.screen.query(Panel) if panel.display}


def panels_of(name: str) -> set[type[Panel]]:
    return next(set(page.panels()) for page in PAGES if page.name == name)


async def test_an_idle_app_mounts_the_panels_of_all_pages(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.json")
    app = DecodescopeApp(TraceSource((path,)), mount_ahead=True)
    async with app.run_test(size=SIZE) as pilot, asyncio.timeout(MOST_WAIT_S):
        assert not mounted(app) >= ALL_KINDS
        # A key that comes before finds its page.
        await pilot.press("3")
        await settle(pilot)
        assert shown(app) & panels_of("kernels")
        while not mounted(app) >= ALL_KINDS:
            await asyncio.sleep(0.02)
        await settle(pilot)
        assert not app._painter.screen.mount_ahead()
        assert shown(app) & ALL_KINDS == panels_of("kernels")
        for page in PAGES:
            await pilot.press(page.key)
            await settle(pilot)
            assert shown(app) & panels_of(page.name), page.name


async def test_pages_look_as_if_they_were_mounted_when_shown(tmp_path: Path) -> None:
    looks = []
    path = write_trace(tmp_path / "a.json")
    for ahead in (False, True):
        app = DecodescopeApp(TraceSource((path,)), mount_ahead=ahead)
        async with app.run_test(size=SIZE) as pilot, asyncio.timeout(MOST_WAIT_S):
            await settle(pilot)
            while ahead and not mounted(app) >= ALL_KINDS:
                await asyncio.sleep(0.02)
            texts = []
            for page in PAGES:
                if page.name not in ("files", "log"):
                    await pilot.press(page.key)
                    await settle(pilot)
                    texts.append(text_of(app))
            looks.append(texts)
    assert looks[0] == looks[1]


async def test_an_app_ends_while_it_mounts(tmp_path: Path) -> None:
    app = DecodescopeApp(TraceSource((write_trace(tmp_path / "a.json"),)), mount_ahead=True)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("q")
    assert app.return_code == 0
    assert app.crash is None


async def test_no_panel_is_mounted_ahead_unless_asked(tmp_path: Path) -> None:
    app = DecodescopeApp(TraceSource((write_trace(tmp_path / "a.json"),)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        before = mounted(app)
        await asyncio.sleep(0.3)
        assert mounted(app) == before
