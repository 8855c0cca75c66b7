"""Writes a recording four times a second until it is told to end: `FOLDER NAME`.

It ends like a run when `end` appears in the folder, and forgets its figures when `none` did before
it began.
"""

import sys
import time
from pathlib import Path

from decodescope.analyzer.protocol import State
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.helpers.scripted import hello, ready, stats, write_trace


def main() -> None:
    folder, seq = Path(sys.argv[1]), 0
    writer = RecordingWriter(folder / sys.argv[2])
    writer.write(hello())
    writer.write(State("running", "eager"))
    writer.write(ready(write_trace(folder / "window.json")))
    while not (folder / "end").exists():
        seq += 1
        writer.write(stats(seq, tokens_per_s=1000.0 + seq))
        time.sleep(0.26)
    writer.close()


if __name__ == "__main__":
    main()
