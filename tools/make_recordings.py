"""Makes the bundled recordings: `python -m tools.make_recordings`, on the GPU to be shown.

Runs the app for a few seconds with each variant, and writes <gpu>-<model>-<variant>.dsrec below
analyzer/recordings.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.terminal import record_live
from decodescope.variants.machine.environment import environment

FOLDER = Path(__file__).resolve().parent.parent / "analyzer" / "recordings"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="eager,compiled")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    gpu = str(environment()["gpu"] or "cpu").replace("NVIDIA ", "").replace(" ", "-").lower()
    model = arguments.model.partition("@")[0]
    for variant in arguments.variants.split(","):
        path = arguments.output / f"{gpu}-{model}-{variant}.dsrec"
        options = ["--model", arguments.model, "--variant", variant]
        record_live(options, arguments.seconds, path)
        sys.stderr.write(f"{path.name}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
