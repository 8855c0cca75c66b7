"""What the attached app costs the model: tokens/s of `live` against `run`, interleaved.

Each repeat runs `decodescope run` and then the app in a pseudo-terminal for some seconds with
`--record`; the app's tokens/s is the median of its recorded statistics (unprofiled steps). Writes
benchmarks/results/live-overhead-<variant>.json with every figure and the environment.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pexpect

from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.protocol import Stats
from decodescope.analyzer.recording import read_recording
from decodescope.variants.environment import environment

RESULTS = Path(__file__).resolve().parent / "results"
SETTLE_STATS = 8


def run_tokens_per_s(options: list[str]) -> float:
    """tokens/s that `decodescope run --json` reports."""
    command = [sys.executable, "-m", "decodescope", "run", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["tokens_per_s"])


def live_tokens_per_s(options: list[str], seconds: float, recording: Path) -> list[float]:
    """tokens/s in each of the app's statistics, after the first few, over about `seconds`."""
    arguments = ["-m", "decodescope", "live", *options, "--record", str(recording)]
    app = pexpect.spawn(sys.executable, arguments, dimensions=(40, 120), timeout=1)
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        with contextlib.suppress(pexpect.TIMEOUT):
            app.read_nonblocking(65536, timeout=0.2)
        partial = [recording, *recording.parent.glob(f"*{recording.name}*")]
        if deadline is None and any(p.is_file() and p.stat().st_size > 20_000 for p in partial):
            deadline = time.monotonic() + seconds
    app.send("q")
    app.expect(pexpect.EOF, timeout=30)
    frames = read_recording(recording).frames
    rates = [f.message.tokens_per_s for f in frames if isinstance(f.message, Stats)]
    return rates[SETTLE_STATS:]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variant", default="compiled")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    options = ["--model", arguments.model, "--variant", arguments.variant]
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(arguments.repeats):
            run_rate = run_tokens_per_s(options)
            rates = live_tokens_per_s(
                options, arguments.seconds, Path(folder) / f"live-{repeat}.dsrec"
            )
            live_rate = statistics.median(rates)
            pairs.append(
                {
                    "run_tokens_per_s": run_rate,
                    "live_tokens_per_s": live_rate,
                    "live_statistics": len(rates),
                    "live_over_run": live_rate / run_rate,
                }
            )
            sys.stderr.write(f"{pairs[-1]}\n")
    record = {
        "command": f"python benchmarks/live_overhead.py {' '.join(sys.argv[1:])}".strip(),
        "model": arguments.model,
        "variant": arguments.variant,
        "pairs": pairs,
        "median_live_over_run": statistics.median(p["live_over_run"] for p in pairs),
        "environment": environment(),
    }
    path = RESULTS / f"live-overhead-{arguments.variant}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


if __name__ == "__main__":
    main()
