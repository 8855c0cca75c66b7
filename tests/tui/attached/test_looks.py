"""How page 1 looks while the app is attached, as SVG; the clock stands still."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from decodescope.analyzer.protocol.attach_messages import ServerSample
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import ServerMetrics
from tests.helpers.scripted import settle
from tests.helpers.scripted_door import metrics
from tests.tui.attached.test_group import GONE, NAMES

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]


def by_size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def one_server(second: int) -> ServerMetrics:
    return metrics(second, 1000.0 * second + second % 7 * 60)


def two_servers(second: int) -> ServerMetrics:
    """As `one_server`, beside one that has vanished since second 50."""
    first = replace(one_server(second), name=NAMES[0])
    return ServerMetrics(
        float(second),
        servers=(first, replace(first, name=NAMES[1], problem=GONE if second >= 50 else "")),
    )


async def minute(attachment, at=one_server) -> None:
    """A minute of a server at about 1,000 tokens/s."""
    feed = attachment.app._feeds.shown
    seconds = [at(second) for second in range(1, 61)]
    for before, after in pairwise(seconds):
        attachment.clock.now += 1
        feed.receive(ServerSample(figures(before, after)), attachment.clock.now)


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


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=by_size)
def test_page_step_of_servers(attachment, snap_compare, size) -> None:
    async def act(pilot) -> None:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        await attachment.take(pilot, 1)
        await minute(attachment, two_servers)
        await pilot.press("escape")
        await settle(pilot)

    assert snap_compare(attachment.app, terminal_size=size, run_before=act)
