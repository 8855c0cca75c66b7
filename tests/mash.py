"""`python -m tests.mash --seconds 600 --seed 1`: keys at random on every page, at changing sizes.

Each round is an app on a scripted run, a recording, one that is being written, or traces, with its
own seed. A failure shows
the seed and what was pressed; `--seed K --rounds 1` repeats it.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
import traceback
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.protocol.messages import (
    Bye,
    Failure,
    Heartbeat,
    Log,
    Meters,
    Progress,
    State,
    WorkerMessage,
)
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.model.sources import LiveSource, ReplaySource, Source, TraceSource
from tests.helpers.scripted import (
    DIED,
    ScriptedLink,
    StillClock,
    hello,
    ready,
    stats,
    text_of,
    write_trace,
)

# Not q, ctrl+c and ctrl+q, which leave.
KEYS = (
    *"1234567890",
    *"abcdefghijklmnoprstuvwxyz",
    *"ABCDEFGHIJKLMNOPRSTUVWXYZ",
    *"""+-/?:;,.<>(){}[]*_=!@#$%&|~'\\\"""",
    "space",
    "enter",
    "enter",
    "escape",
    "escape",
    "tab",
    "tab",
    "shift+tab",
    "backspace",
    "delete",
    "up",
    "down",
    "left",
    "right",
    "home",
    "end",
    "pageup",
    "pagedown",
    "shift+left",
    "shift+right",
    "ctrl+p",
    "ctrl+s",
    "ctrl+u",
    "ctrl+w",
    "ctrl+a",
    "f1",
    "\u00e9",
)
SIZES = (
    (1, 1),
    (2, 2),
    (7, 3),
    (20, 5),
    (60, 4),
    (60, 16),
    (80, 24),
    (120, 40),
    (200, 50),
    (300, 100),
)


def write_recording(folder: Path) -> Path:
    """Two variants with a window each, in 40 s."""
    now, path = [0], folder / "mashed.dsrec"
    with closing(RecordingWriter(path, clock_ns=lambda: now[0])) as writer:
        for second in range(40):
            now[0] = second * 1_000_000_000
            variant = "eager" if second < 20 else "compiled"
            if second == 0:
                writer.write(hello())
            if second in (0, 20):
                writer.write(State("running", variant))
            if second in (10, 30):
                trace = write_trace(folder / f"recorded-{second}.json", variant)
                writer.write(ready(trace, variant))
            writer.write(stats(second, variant))
    return path


_LAID_OUT_S = 5.0


@dataclass
class Mash:
    """One app under a storm; `did` is what happened to it, for the report of a failure."""

    folder: Path
    rng: random.Random
    did: list[str] = field(default_factory=list)
    link: ScriptedLink = field(default_factory=lambda: ScriptedLink(answers=True))
    writer: RecordingWriter | None = None

    def _opened(self, source: Source) -> DecodescopeApp:
        """An app whose comparisons end before they begin."""
        nothing = ComparisonLink((sys.executable, "-c", "pass"))
        return DecodescopeApp(source, None, StillClock(), self.folder, comparison=nothing)

    def app(self) -> DecodescopeApp:
        """An app on a run, a recording, one that is being written, or traces."""
        kind = self.rng.choice(("live", "live", "replay", "followed", "traces"))
        self.did.append(kind)
        if kind == "live":
            self.link.say(hello(), State("running", "eager"), stats(1))
            return self._opened(LiveSource(self.link))
        if kind == "replay":
            return self._opened(ReplaySource(write_recording(self.folder)))
        if kind == "followed":
            self.writer = RecordingWriter(self.folder / "growing.dsrec")
            self.writer.write(hello())
            return self._opened(ReplaySource(self.folder / "growing.dsrec.partial"))
        broken = self.folder / "broken.json"
        broken.write_text('{"traceEvents": [')
        return self._opened(TraceSource((write_trace(self.folder / "a.json"), broken)))

    async def run(self, steps: int) -> None:
        """So many things happen to one app.

        Raises:
            Exception: the app ended with it.
            TimeoutError: it draws outside its terminal.
        """
        app = self.app()
        try:
            async with app.run_test(size=self.rng.choice(SIZES)) as pilot:
                for _ in range(steps):
                    await self._one(app, pilot)
                    await asyncio.sleep(0)
                    if not app.is_running or app._exit:
                        break
                    # A busy machine lays out a moment after the size has changed.
                    async with asyncio.timeout(_LAID_OUT_S):
                        while len(text_of(app).splitlines()) > app.size.height:
                            await pilot.pause()
        finally:
            if self.writer is not None:
                self.writer.close()
        assert app.crash is None

    async def _one(self, app: DecodescopeApp, pilot) -> None:
        rng = self.rng
        match rng.choices(("key", "keys", "size", "click", "event"), (70, 8, 10, 6, 8))[0]:
            case "key":
                key = rng.choice(KEYS)
                self.did.append(key)
                await pilot.press(key)
            case "keys":
                keys = rng.choices(KEYS, k=rng.randrange(2, 12))
                self.did.append(" ".join(keys))
                await pilot.press(*keys)
            case "size":
                size = rng.choice(SIZES)
                if rng.random() < 0.5:
                    size = (rng.randint(1, 300), rng.randint(1, 100))
                self.did.append(f"{size[0]}x{size[1]}")
                await pilot.resize_terminal(*size)
            case "click":
                place = (rng.randrange(app.size.width), rng.randrange(app.size.height))
                self.did.append(f"click {place}")
                await pilot.click(offset=place, times=rng.choice((1, 2)))
            case "event":
                event = self._event()
                self.did.append(type(event).__name__)
                self._report(event)
                await pilot.pause()

    def _report(self, event: object) -> None:
        """The run says something; that of a recording may also end, or its file be cut."""
        self.link.say(event)
        if self.writer is None:
            return
        if isinstance(event, WorkerMessage):
            self.writer.write(event)
        partial = self.folder / "growing.dsrec.partial"
        if self.rng.random() < 0.1 and partial.exists():
            self.did.append("cut")
            os.truncate(partial, self.rng.randrange(partial.stat().st_size + 1))
        elif self.rng.random() < 0.1:
            self.did.append("end")
            self.writer.close()

    def _event(self) -> object:
        rng, number = self.rng, self.rng.randrange(1000)
        variant = rng.choice(("eager", "compiled", "fused+graph", "unheard of"))
        trace = self.folder / f"window-{number}.json"
        return rng.choice(
            (
                lambda: stats(number, variant, rng.uniform(0.001, 1e6)),
                lambda: State(rng.choice(("running", "paused", "building", "failed")), variant),
                lambda: Log(rng.choice(("info", "warning", "error")), "\u8a9e\x1b[2J " * number),
                lambda: ready(write_trace(trace, variant), variant, rng.random() < 0.2),
                lambda: ready(self.folder / "gone.json", variant),
                lambda: Failure("no memory " * rng.randrange(50), 1, rng.random() < 0.2),
                lambda: Meters(power_w=rng.uniform(0, 900), throttle=("heat",)),
                lambda: Progress("compiling", "x" * number),
                hello,
                Heartbeat,
                lambda: DIED,
                lambda: Bye("ended"),
            )
        )()


def main() -> int:
    """The command line; 1 if a round failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    end, failed, seed, steps = time.monotonic() + arguments.seconds, 0, arguments.seed, 0
    while time.monotonic() < end and (
        arguments.rounds is None or seed < arguments.seed + arguments.rounds
    ):
        with tempfile.TemporaryDirectory(prefix="mash-") as name:
            os.chdir(name)
            mash = Mash(Path(name), random.Random(seed))
            try:
                asyncio.run(mash.run(arguments.steps))
            except Exception as error:
                failed += 1
                last = ", ".join(mash.did[-12:])
                traceback.print_exception(error)
                sys.stderr.write(f"seed {seed}: {mash.did[0]}, …, {last}\n")
            os.chdir("/")
        steps += len(mash.did)
        seed += 1
    sys.stderr.write(f"{seed - arguments.seed} rounds, {steps} actions, {failed} failed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
