"""A run that is recorded, in a process of its own: writes the recording `PATH` until it is told to
end by a file `end` beside it."""

import sys
import time
from pathlib import Path

from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.helpers.scripted import hello, ready, stats, write_trace


def main() -> None:
    path, seq = Path(sys.argv[1]), 0
    writer = RecordingWriter(path)
    writer.write(hello())
    writer.write(State("running", "eager"))
    writer.write(ready(write_trace(path.with_name("window.json"))))
    while not path.with_name("end").exists():
        seq += 1
        writer.write(stats(seq, tokens_per_s=100.0 + seq))
        time.sleep(0.26)
    writer.close()


if __name__ == "__main__":
    main()
