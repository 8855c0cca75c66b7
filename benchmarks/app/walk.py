"""A walk through the app, as somebody does who opens a trace and asks: each question, the keys that
answer it, and the seconds from the first key to the answer on the screen.

The trace is a window of `compiled` that does not name its model; a window of `eager` stands beside
it. Both are of bundled recordings. The keys are pressed one after the other, each when the screen
shows what the one before asked for; the time that a person thinks is not in it. Writes
benchmarks/results/app-walk.json.
"""

import gzip
import json
import os
import re
import statistics
import tempfile
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pyte
import rich_click as click

from benchmarks.app.terminal import AppRun
from benchmarks.harness.processes import repeated
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.recordings.bundled import bundled_variants
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.options import number_option

LIMIT_S = 60.0
MODEL = "llama-3.2-1b"


@dataclass(frozen=True, slots=True)
class Press:
    """Keys, or a word that is typed, and the pattern that the screen shows after them."""

    keys: str
    shows: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and how it is answered on page `page`. `most` keys are allowed, not counting a
    word that is typed."""

    question: str
    most: int
    page: str
    presses: tuple[Press, ...]

    @property
    def keys(self) -> int:
        """Keys that are pressed; a typed word counts for none."""
        return sum(press.keys != MODEL for press in self.presses)


WALK = (
    Question(
        "name its model",
        4,
        "1",
        (Press("m", "model"), Press(MODEL, rf"(?i){MODEL}"), Press("\r", rf"(?i)limit.*{MODEL}\)")),
    ),
    Question(
        "the kernel that loses most, in the timeline", 2, "1", (Press("\r", r"Timeline .*step"),)
    ),
    Question("the largest group of gaps, and its cause", 2, "1", (Press("4", r"▸ \w+"),)),
    Question(
        "compare with a file of the same folder",
        4,
        "1",
        (Press("7", r"eager\.json"), Press("\x1b[B", r"eager\.json"), Press("c", r"x\d+\.\d+")),
    ),
    Question(
        "open a bundled recording",
        3,
        "1",
        (Press("8", r"\.dsrec"), Press("\x1b[B", r"\.dsrec"), Press("\r", r"replay")),
    ),
    Question(
        "export it",
        3,
        "1",
        (Press("e", r"Chrome"), Press("\r", r"Export written")),
    ),
    Question("what a term means", 2, "3", (Press("?", r"(?i)attributed|share"),)),
)


class Walker:
    """The app on a trace, and what its screen shows."""

    def __init__(self, *arguments: str) -> None:
        self._screen = pyte.Screen(120, 40)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0
        self.app = AppRun(*arguments)

    def until(self, pattern: str) -> float:
        """Wait until the screen shows `pattern`; returns the seconds since the start.

        Raises:
            TimeoutError: it was not there in time.
        """
        wanted = re.compile(pattern)
        end_s = time.monotonic() - self.app.started + LIMIT_S
        return self.app.read_until(lambda: wanted.search(self._shown()) is not None, end_s)

    def _shown(self) -> str:
        self._stream.feed(self.app.output[self._fed :])
        self._fed = len(self.app.output)
        return "\n".join(self._screen.display)


def write_window(variant: str, path: Path) -> None:
    """The last window of a bundled recording, without the name of its model."""
    recording, _ = bundled_variants()[variant]
    document = json.loads(gzip.decompress(read_recording(recording).last_packed_traces()[0]))
    unnamed = {key: value for key, value in document.items() if "decodescope" not in key}
    path.write_text(json.dumps(unnamed))


def answered(trace: Path, question: Question) -> float:
    """The seconds that the keys of one question take, in an app of its own."""
    walker = Walker("open", str(trace))
    walker.until(r"-bound")
    if question.page != "1":
        walker.app.press(question.page)
    walker.app.read_for(1.0)
    begun = time.monotonic()
    for press in question.presses:
        walker.app.press(press.keys)
        walker.until(press.shows)
    seconds = time.monotonic() - begun
    walker.app.stop()
    return seconds


def opened(trace: Path) -> float:
    """The seconds from the start of the process to the bound on the screen."""
    walker = Walker("open", str(trace))
    seconds = walker.until(r"-bound")
    walker.app.stop()
    return seconds


def measure(folder: Path) -> dict[str, float]:
    """Every question once."""
    trace = folder / "compiled.json"
    times = {"what bounds it": opened(trace)}
    return times | {each.question: answered(trace, each) for each in WALK}


@click.command("app-walk")
@number_option("--repeats", default=3, show_default=True)
def command(repeats: int) -> None:
    """A walk through the app: keys and seconds from a question to its answer."""
    with tempfile.TemporaryDirectory(prefix="decodescope-bench-") as name:
        folder = Path(name) / "traces"
        folder.mkdir()
        for variant in ("compiled", "eager"):
            write_window(variant, folder / f"{variant}.json")
        # What the app remembers for its user is not part of the walk.
        os.environ |= {"XDG_STATE_HOME": name, "XDG_CONFIG_HOME": name}
        with chdir(folder):
            runs = repeated(repeats, lambda: measure(folder))
    keys = {"what bounds it": (0, 0)} | {each.question: (each.keys, each.most) for each in WALK}
    record = {
        "size": "120x40",
        "walk": [
            {
                "question": question,
                "keys": pressed,
                "most_keys": most,
                "median_s": statistics.median(run[question] for run in runs),
            }
            for question, (pressed, most) in keys.items()
        ],
        "runs": runs,
    }
    write_record(RESULTS / "app-walk.json", record)
