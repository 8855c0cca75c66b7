"""Makes the bundled recordings: `python -m tools.make_recordings`, on the GPU to be shown.

Runs the app for a few seconds with each variant that runs here, and writes
<gpu>-<model>-<variant>.dsrec below analyzer/recordings; with --tp 2, <gpu>x2-…. All together may
take 6 MB. `eager` needs `--variants eager --seconds 60`: cuDNN still plans in its first window.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.app.terminal import record_live
from decodescope.variants.machine.environment import choose_device, environment
from decodescope.variants.registry import available_variants, find_variant

MOST_BYTES = 6_000_000
FOLDER = Path(__file__).resolve().parent.parent / "analyzer" / "recordings"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", help="comma-separated [default: all that run here]")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    gpu = str(environment()["gpu"] or "cpu").replace("NVIDIA ", "").replace(" ", "-").lower()
    gpu += f"x{arguments.tp}" if arguments.tp > 1 else ""
    model = arguments.model.partition("@")[0]
    runnable = [
        v.name
        for v in available_variants(choose_device(None))
        if v.unavailable is None and not v.interpreted
    ]
    arguments.output.mkdir(parents=True, exist_ok=True)
    variant_names = arguments.variants.split(",") if arguments.variants else runnable
    for variant in (find_variant(name).name for name in variant_names):
        path = arguments.output / f"{gpu}-{model}-{variant}.dsrec"
        options = ["--model", arguments.model, "--variant", variant, "--tp", str(arguments.tp)]
        record_live(options, arguments.seconds, path)
        sys.stderr.write(f"{path.name}: {path.stat().st_size:,} bytes\n")
    total = sum(path.stat().st_size for path in arguments.output.glob("*.dsrec"))
    sys.stderr.write(f"together {total:,} bytes\n")
    if total > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES:,} bytes: record fewer seconds")


if __name__ == "__main__":
    main()
