"""What was given beside files counts for them whenever they are opened, and for no others."""

from pathlib import Path

import pytest
from textual.widgets import Input

from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.model.user_files import Places
from decodescope.tui.panels.messages import AskFile
from tests.helpers.app.files import typed
from tests.helpers.foreign.captures import capture_of, captured, kernels, model, replays
from tests.helpers.kineto_events import document
from tests.helpers.scripted import StillClock, settle

NODES = model(3)
GIVEN = Given(captures=(capture_of(captured(NODES, around="capture_32_FULL")),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three equal traces, whose ops have module paths only with the capture."""
    for name in ("mine", "also", "other"):
        (tmp_path / f"{name}.json").write_bytes(document(replays(kernels(NODES))))
    return tmp_path


def app_of(folder: Path, *names: str) -> DecodescopeApp:
    places = Places(folder / "state" / "state.json", folder / "keymap.toml")
    source = TraceSource(tuple(folder / name for name in names), GIVEN)
    return DecodescopeApp(source, clock=StillClock(), folder=folder, places=places)


def named(app: DecodescopeApp) -> tuple[str, bool]:
    """The file that is shown, and whether the capture named its ops."""
    window = app.view().window
    assert window is not None
    return window.path.name, any("Layer_2" in path for path in window.analysis.ranges.paths)


async def opened(pilot, text: str) -> tuple[str, bool]:
    await typed(pilot, text)
    await pilot.press("enter")
    await settle(pilot)
    return named(pilot.app)


async def test_it_counts_again_for_its_file_and_never_for_another(folder: Path) -> None:
    app = app_of(folder, "mine.json")
    (folder / "link.json").symlink_to("mine.json")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert named(app) == ("mine.json", True)
        assert await opened(pilot, "other.json") == ("other.json", False)
        # Named in another way, it is the same file.
        again = f"{folder}/../{folder.name}/mine.json"
        assert await opened(pilot, again) == ("mine.json", True)
        assert await opened(pilot, "other.json") == ("other.json", False)
        assert await opened(pilot, "link.json") == ("link.json", True)


async def test_of_several_files_each_has_it(folder: Path) -> None:
    app = app_of(folder, "mine.json", "also.json")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert await opened(pilot, "also.json") == ("also.json", True)
        assert await opened(pilot, "other.json") == ("other.json", False)
        assert await opened(pilot, "mine.json") == ("mine.json", True)


@pytest.mark.parametrize(("second", "counts"), [("also.json", True), ("other.json", False)])
async def test_files_opened_together_have_it_if_all_are_its_files(
    folder: Path, second: str, counts: bool
) -> None:
    app = app_of(folder, "mine.json", "also.json")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for name in ("mine.json", second):
            app._library.mark(folder / name)
        await app._files.answer(AskFile("open", folder / second))
        await settle(pilot)
        for key, name in (("2", second), ("1", "mine.json")):
            await pilot.press("v", key)
            await settle(pilot)
            assert named(app) == (name, counts)


async def test_another_file_is_compared_with_what_was_given_beside_the_shown_one(
    folder: Path,
) -> None:
    """As `decodescope diff` does: paths of one side alone would pair with none of the other."""
    app = app_of(folder, "mine.json")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("7", "d")
        await settle(pilot)
        pilot.app.screen.query_one(Input).value = str(folder / "other.json")
        await pilot.press("enter")
        await settle(pilot)
    result = app._comparisons.state.result
    assert isinstance(result, Diff)
    sides = {one.path: (one.gpu_ns.base, one.gpu_ns.other) for one in result.pair.ranges}
    assert any("aten::attention" in path for path in sides)
    assert all(mine == its for mine, its in sides.values())
