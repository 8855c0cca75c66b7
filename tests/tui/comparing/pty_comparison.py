"""Runs the app on this terminal, on its A/B page, with a comparison that goes by at once."""

import asyncio
import sys
from pathlib import Path

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig, ComparisonProgress
from decodescope.analyzer.protocol.messages import State
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import LiveSource
from tests.helpers.scripted import ScriptedLink, hello
from tests.tui.comparing.scripted_comparison import ScriptedComparison, done, whole_round

PAUSE_S = 0.4


class PassingComparison(ScriptedComparison):
    """Three rounds; each event is painted before the next one comes."""

    async def start(self, config: ComparisonConfig) -> None:
        await super().start(config)
        self._passing = asyncio.create_task(self._pass())

    async def _pass(self) -> None:
        for number in range(3):
            self.say(*whole_round(number))
            await asyncio.sleep(PAUSE_S)
        self.say(ComparisonProgress(3, stage="scoring eager"))
        await asyncio.sleep(PAUSE_S)
        self.say(*done())


def main() -> None:
    worker = ScriptedLink(answers=True)
    worker.say(hello(), State("running", "eager"))
    DecodescopeApp(
        LiveSource(worker), folder=Path(sys.argv[1]), page="ab", comparison=PassingComparison()
    ).run()


if __name__ == "__main__":
    main()
