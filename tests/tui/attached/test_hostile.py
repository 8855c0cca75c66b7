"""A target whose every string is hostile."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from decodescope.analyzer.errors import DecodescopeError
from tests.helpers.hostile import FILE, HOSTILE, hostile_trace, unsafe
from tests.helpers.scripted import settle
from tests.helpers.scripted_door import metrics


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (80, 24), (160, 50)])
async def test_hostile_strings_are_text(attachment, size: tuple[int, int]) -> None:
    door, shown = attachment.door, []
    door.name = door.price = HOSTILE
    door.answers = [metrics(1), metrics(2), HOSTILE]
    door.refusals = [DecodescopeError(HOSTILE)]
    door.write = lambda folder, number: [Path(hostile_trace(folder / f"{number}{FILE}"))]
    async with attachment.app.run_test(size=size) as pilot:
        await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
        shown.append(attachment.shown)
        await pilot.press("t")
        await attachment.until(pilot, lambda: not attachment.view.attached.stage)
        shown.append(attachment.shown)
        await attachment.take(pilot, 2)
        for key in ("1", "8", "9", "D", "1", "v"):
            await pilot.press(key)
            await settle(pilot)
            shown.append(attachment.shown)
    for screen in shown:
        assert unsafe(screen) == ""
        assert all(cell_len(line) <= size[0] for line in screen.splitlines())
