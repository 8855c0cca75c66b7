"""How page 1 looks while the app is attached, as SVG; the clock stands still."""

from itertools import pairwise

import pytest

from decodescope.attach.servers.rates import rates
from decodescope.tui.link.attach_events import ServerSample
from tests.helpers.scripted import settle
from tests.helpers.scripted_door import metrics

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]


def by_size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


async def minute(attachment) -> None:
    """A minute of a server at about 1,000 tokens/s."""
    feed = attachment.app._feeds.shown
    seconds = [metrics(second, 1000.0 * second + second % 7 * 60) for second in range(1, 61)]
    for before, after in pairwise(seconds):
        attachment.clock.now += 1
        feed.receive(ServerSample(after, rates(before, after)), attachment.clock.now)


@pytest.mark.parametrize("windows", [0, 2])
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_page_step(attachment, snap_compare, size, windows: int) -> None:
    async def act(pilot) -> None:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        await minute(attachment)
        if windows:
            await attachment.take(pilot, windows)
            await minute(attachment)
        await settle(pilot)

    assert snap_compare(attachment.app, terminal_size=size, run_before=act)
