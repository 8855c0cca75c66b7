"""The link to a comparison: a process that measures variants in turn."""

from pathlib import Path

import msgspec

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig, ComparisonMessage
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.process import ProcessLink

ComparisonLinkEvent = ComparisonMessage | WorkerDied

# When the app ends, nobody waits for the rounds that are complete.
_LEAVE_GRACE_S = 0.6


class ComparisonLink(ProcessLink):
    """One comparison at a time by `python -m decodescope.variants.comparing.live_comparison`."""

    NAME = "the comparison"
    MODULE = "decodescope.variants.comparing.live_comparison"
    MESSAGES = ComparisonMessage
    # It ends its own child first, and compares the rounds that are complete.
    quit_grace_s = 15.0

    async def start(self, config: ComparisonConfig) -> None:
        """Begin a comparison; its messages arrive through `receive`.

        Raises:
            MissingRequirement: no process can be started, or its log cannot be written.
        """
        await self.end()
        self._config = config
        self.spawn()
        await self.attach()

    async def receive(self) -> ComparisonLinkEvent | None:
        return await super().receive()  # type: ignore[return-value]

    async def close(self) -> None:
        self.quit_grace_s = _LEAVE_GRACE_S
        await super().close()

    def _files(self) -> tuple[str, Path]:
        argument = msgspec.json.encode(self._config).decode()
        return argument, self._temporary() / "comparison.log"
