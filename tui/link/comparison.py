"""The link to a comparison: a process that measures variants in turn."""

import asyncio
import sys

import msgspec

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig, ComparisonMessage
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.process import ChildProcess

ComparisonLinkEvent = ComparisonMessage | WorkerDied

# It ends its own child first, and compares the rounds that are complete.
_QUIT_GRACE_S = 15.0
# When the app ends, nobody waits for that.
_LEAVE_GRACE_S = 4.0
_MODULE = "decodescope.variants.comparing.live_comparison"


class ComparisonLink:
    """One comparison at a time by `python -m decodescope.variants.comparing.live_comparison`.

    Tests pass a fake: `argv` replaces the interpreter and module.
    """

    def __init__(self, argv: tuple[str, ...] | None = None) -> None:
        self._argv = argv or (sys.executable, "-u", "-m", _MODULE)
        self._child = ChildProcess("the comparison", ComparisonMessage, quit_grace_s=_QUIT_GRACE_S)
        self._folder: WorkFolder | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid

    async def start(self, config: ComparisonConfig) -> None:
        """Begin a comparison; its messages arrive through `receive`.

        Raises:
            MissingRequirement: no process can be started, or its log cannot be written.
        """
        await self._child.end()
        try:
            self._folder = self._folder or WorkFolder()
        except OSError as error:
            raise MissingRequirement(f"the comparison cannot be started: {error}") from error
        await self._child.start(
            self._argv, msgspec.json.encode(config).decode(), self._folder.path / "comparison.log"
        )

    async def receive(self) -> ComparisonLinkEvent | None:
        """The next event, `WorkerDied` after a comparison that ended by itself; None once
        closed."""
        return await self._child.receive()  # type: ignore[return-value]

    async def cancel(self) -> None:
        """Interrupt the comparison; returns when its processes have ended. The comparison of its
        complete rounds, if any, can still be received."""
        await self._child.end()

    async def close(self) -> None:
        """End the comparison; a pending `receive` returns None."""
        self._child.quit_grace_s = _LEAVE_GRACE_S
        await self._child.close()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)
            self._folder = None
