"""Runs the app on this terminal with a worker that reports four times a second and then dies."""

import asyncio
import sys
from pathlib import Path

from decodescope.analyzer.protocol.messages import State
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.model.view import AppClock
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import ScriptedLink, hello, ready, stats, write_trace


class TalkingLink(ScriptedLink):
    """Goes on reporting until it dies, when the file `die` appears in the folder."""

    folder: Path

    async def start(self) -> None:
        self.say(hello(), State("running", "eager"))
        self.say(ready(write_trace(self.folder / "window-0001.json")))
        self._talk = asyncio.create_task(self._report())

    async def _report(self) -> None:
        seq = 0
        while not (self.folder / "die").exists():
            seq += 1
            self.say(stats(seq))
            await asyncio.sleep(0.25)
        self.say(WorkerDied(-9, ("last words",)))


def main() -> None:
    link = TalkingLink(answers=True)
    link.folder = Path(sys.argv[1])
    traits = TerminalTraits(unicode=sys.argv[2] == "unicode")
    app = DecodescopeApp(LiveSource(link), traits, AppClock(), link.folder, mount_ahead=True)
    app.run()
    sys.exit(app.return_code)


if __name__ == "__main__":
    main()
