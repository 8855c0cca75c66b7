"""The live page shows how evenly a mixture uses its experts."""

from pathlib import Path

from msgspec.structs import replace

from decodescope.analyzer.schema.report import ExpertsBalance
from tests.helpers import scripted
from tests.helpers.scripted import settle, text_of


async def test_the_balance_stands_above_the_history(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        await settle(pilot)
        assert "experts a layer" not in text_of(session.app)
        session.link.say(replace(scripted.stats(9), balance=ExpertsBalance(128, 81.53, 0.031)))
        await settle(pilot)
        assert "81.5 of 128 experts a layer, the busiest 3.1 %" in text_of(session.app)
