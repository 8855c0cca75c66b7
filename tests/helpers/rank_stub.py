"""A rank that needs no torch: it notes its process in a folder, and ends as it is told."""

import os
import signal
import sys
import time
from pathlib import Path

from decodescope.variants.machine.child_process import die_with_parent

SAYS = "decodescope: rank 1: odd weights"


def main(action: str, folder: Path) -> None:
    die_with_parent()
    rank = os.environ["RANK"]
    (folder / f"{rank}.new").write_text(str(os.getpid()))
    (folder / f"{rank}.new").rename(folder / rank)
    sys.stdout.write(f"rank {rank} of {os.environ['WORLD_SIZE']}\n")
    sys.stdout.flush()
    if action == "end":
        return
    if action == "stop" and rank == "0":
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == "1":
        # The launcher ends the other one, which has to have noted its process.
        while not (folder / "0").exists():
            time.sleep(0.01)
        if action in ("say", "stop"):
            sys.stderr.write(f"loading\n{SAYS}\n")
            sys.exit(2)
        if action == "exit":
            sys.stderr.write("no module of this name\n")
            sys.exit(1)
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
