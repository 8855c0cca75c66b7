"""The cost of the attached app to the model: tokens/s of `live` against `run`, interleaved.

Each repeat runs, for each variant in turn, `decodescope run` and then the app in a pseudo-terminal
with `--record`; the app's tokens/s is the median of its recorded statistics, which count unprofiled
steps. The share of a core that the app's process uses is that of the same time; its worker's is not
part of it. Writes benchmarks/results/live-overhead.json with every figure and the environment.
"""

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.app.terminal import record_live
from benchmarks.harness.common import RESULTS, printed_json, repeated, write_record
from decodescope.analyzer.protocol.messages import Stats
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.ending import end_with

SETTLE_STATS = 8


def run_tokens_per_s(options: list[str]) -> float:
    """tokens/s that `decodescope run --json` reports."""
    return float(printed_json("run", *options)["tokens_per_s"])


def live_tokens_per_s(recording: Path) -> list[float]:
    """tokens/s in each of a recording's statistics, after the first few."""
    messages = (frame.message for frame in read_recording(recording).frames)
    return [m.tokens_per_s for m in messages if isinstance(m, Stats)][SETTLE_STATS:]


def measure_pair(options: list[str], seconds: float) -> dict[str, float]:
    """One `run` and one attached app."""
    run_rate = run_tokens_per_s(options)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "live.dsrec"
        core_share = record_live(options, seconds, recording)
        rates = live_tokens_per_s(recording)
    live_rate = statistics.median(rates)
    return {
        "run_tokens_per_s": run_rate,
        "live_tokens_per_s": live_rate,
        "live_statistics": len(rates),
        "live_over_run": live_rate / run_rate,
        "app_core_share": core_share,
    }


def measure_round(model: str, variants: list[str], seconds: float) -> dict[str, dict[str, float]]:
    """One pair for each variant, in turn."""
    return {
        variant: measure_pair(["--model", model, "--variant", variant], seconds)
        for variant in variants
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="compiled,fused+graph,fp8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12)
    arguments = parser.parse_args()
    variants = arguments.variants.split(",")
    measured = partial(measure_round, arguments.model, variants, arguments.seconds)
    rounds = repeated(arguments.repeats, measured)
    ratios = {name: [found[name]["live_over_run"] for found in rounds] for name in variants}
    record = {
        "model": arguments.model,
        "live_over_run": {
            name: {"median": statistics.median(all_), "min": min(all_), "max": max(all_)}
            for name, all_ in ratios.items()
        },
        "app_core_share": {
            name: statistics.median(found[name]["app_core_share"] for found in rounds)
            for name in variants
        },
        "rounds": rounds,
    }
    write_record(RESULTS / "live-overhead.json", record)


if __name__ == "__main__":
    end_with(main)
