"""`python -m tests.mash --seconds 600 --seed 1`: keys at random on every page, at changing sizes.

Each round is an app on a scripted run, a recording or traces, with its own seed. A failure shows
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
from pathlib import Path

from tests.helpers.mashing import Mash


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
