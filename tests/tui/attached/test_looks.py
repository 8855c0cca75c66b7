"""How page 1 looks while the app is attached; the clock stands still."""

from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from decodescope.analyzer.protocol.attach_messages import ServerSample
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import ServerMetrics
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app.looks import Looks
from tests.helpers.scripted import settle
from tests.helpers.scripted_door import metrics
from tests.tui.attached.conftest import Attachment
from tests.tui.attached.test_group import GONE, NAMES


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


async def test_page_step(looks: Looks, tmp_path: Path) -> None:
    def app(traits: TerminalTraits) -> DecodescopeApp:
        nonlocal attachment
        attachment = Attachment(tmp_path, traits)
        return attachment.app

    async def attached(pilot) -> None:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        await minute(attachment)
        await settle(pilot)

    async def captured(pilot) -> None:
        await attachment.take(pilot, 2)
        await minute(attachment)
        await settle(pilot)

    async def group(pilot) -> None:
        await minute(attachment, two_servers)
        await pilot.press("escape")
        await settle(pilot)

    attachment = Attachment(tmp_path)
    await looks.walk(app, {"no window": attached, "two windows": captured, "two servers": group})
