"""`--record`: what a command sees, as a recording."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable, is_stdout
from decodescope.cli.output import say

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.attach_messages import AttachMessage
    from decodescope.analyzer.recordings.writer import RecordingWriter
    from decodescope.attach.door import CapturedWindow, Door, WindowPlan

_LAST_ANSWER_S = 1.0


def check_recording(path: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """As `check_writable`, and refuse standard output, which has the reports or the app."""
    if is_stdout(path):
        raise InputError("--record: standard output has the reports or the app; name a file")
    check_writable(path, "--record", inputs)


@contextmanager
def recording_writer(path: Path | None) -> Iterator["RecordingWriter | None"]:
    """The recording at `path`, closed at the end of the block; a line then says if it is not what
    was asked for. None without a path.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        yield None
        return
    from decodescope.analyzer.recordings.writer import RecordingWriter

    writer = RecordingWriter(path)
    try:
        with closing(writer):
            yield writer
    finally:
        if writer.note:
            say(f"decodescope: {writer.note}")


@contextmanager
def recorded(
    door: "Door", plan: "WindowPlan", writer: "RecordingWriter | None"
) -> Iterator[Callable[["CapturedWindow"], None]]:
    """Record the metrics of the target for the length of a block, and each window that the yielded
    function gets. A full disk ends the recording, not the block."""
    if writer is None:
        yield lambda window: None
        return
    from decodescope.attach.watching import taken, target_of, watch

    def write(message: "AttachMessage") -> None:
        with suppress(InputError):  # `writer.note` says it at the end
            writer.write(message)

    write(target_of(door, plan))
    stop = threading.Event()
    watching = threading.Thread(target=watch, args=(door, plan, write, stop), daemon=True)
    watching.start()
    try:
        yield lambda window: write(taken(window))
    finally:
        stop.set()
        # A request may hang; what it says then is not recorded.
        watching.join(_LAST_ANSWER_S)
