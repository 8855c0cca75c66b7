"""Programs that turn a file into another one: within a time, and nothing of them is left behind.

They know nothing of this process, so a process of ours starts and watches them: it kills them when
the pipe from this one closes, however this one ends.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.child_processes import running

_ERROR_BYTES = 4096
_ERROR_LENGTH = 200
_WATCH = """
import os, subprocess, sys, threading
def end():
    os.read(0, 1)
    os.killpg(0, 9)
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=end, daemon=True).start()
sys.exit(program.wait())
"""


def converted(
    command: Sequence[str], source: str, folder: Path, within_s: float, output: IO[bytes] | int
) -> None:
    """Run `command`, which reads `source`, with its standard output in `output`. An interruption
    ends it, with all that it started; `folder` gets its messages.

    Raises:
        TraceError: it cannot be started, fails, or takes longer than `within_s`.
    """
    name = Path(command[0]).name
    messages = folder / "messages"
    try:
        with messages.open("w+b") as said:
            streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": said}
            watched = (sys.executable, "-P", "-I", "-S", "-c", _WATCH, *command)
            with running(watched, start_new_session=True, **streams) as process:
                code = process.wait(within_s)
            if code:
                raise TraceError(f"{source}: {name} ends with code {code}{_last_line(said)}")
    except subprocess.TimeoutExpired:
        raise TraceError(
            f"{source}: {name} took over {within_s / 60:.0f} minutes; run it yourself: "
            f"{' '.join(command)}"
        ) from None
    except OSError as error:
        raise TraceError(f"{source}: {name} cannot be run ({error.strerror or error})") from None


def _last_line(said: IO[bytes]) -> str:
    """The last line of the messages, behind a colon; "" if there are none."""
    said.seek(max(0, said.seek(0, 2) - _ERROR_BYTES))
    lines = said.read().decode("utf-8", "replace").split("\n")
    lines = [text for line in lines if (text := " ".join(line.split()))]
    return f": {lines[-1][:_ERROR_LENGTH]}" if lines else ""
