"""The cost of the attached app to the model: tokens/s of `live` against `run`, interleaved.

Each repeat runs, for each variant in turn, `decodescope run` and then the app in a pseudo-terminal
with `--record`; the app's tokens/s is the median of its recorded statistics, which count unprofiled
steps. The share of a core that the app's process uses is that of the same time; its worker's is not
part of it. Writes benchmarks/results/live-overhead.json with every figure and the environment.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import rich_click as click

from benchmarks.app.terminal import record_live
from benchmarks.harness.processes import printed_json
from benchmarks.harness.records import RESULTS, write_record
from decodescope.analyzer.protocol.messages import Stats
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.cli.options import number_option

SETTLE_STATS = 8

Round: TypeAlias = dict[str, dict[str, float]]


def run_tokens_per_s(options: list[str]) -> float:
    """tokens/s that `decodescope run --json` reports."""
    return float(printed_json("run", *options)["tokens_per_s"])


def live_tokens_per_s(recording: Path) -> list[float]:
    """tokens/s in each of a recording's statistics, after the first few."""
    messages = (frame.message for frame in read_recording(recording).frames())
    rates = [message.rates for message in messages if isinstance(message, Stats)]
    return [each.tokens_per_s for each in rates[SETTLE_STATS:] if each is not None]


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


def measure_round(model: str, variants: list[str], seconds: float) -> Round:
    """One pair for each variant, in turn."""
    return {
        variant: measure_pair(["--model", model, "--variant", variant], seconds)
        for variant in variants
    }


def summarize(model: str, variants: list[str], rounds: list[Round]) -> dict[str, Any]:
    """The rounds, and each variant's live tokens/s ÷ tokens/s of `run` and share of a core."""

    def of_rounds(variant: str, figure: str) -> list[float]:
        return [one[variant][figure] for one in rounds]

    return {
        "model": model,
        "live_over_run": {
            name: {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
            for name in variants
            for ratios in [of_rounds(name, "live_over_run")]
        },
        "app_core_share": {
            name: statistics.median(of_rounds(name, "app_core_share")) for name in variants
        },
        "rounds": rounds,
    }


@click.command("live-overhead")
@click.option("--model", metavar="M", default="llama-3.2-1b@random", show_default=True)
@click.option(
    "--variants", "chosen", metavar="A,B,...", default="compiled,fused+graph,fp8", show_default=True
)
@number_option("--repeats", default=3, show_default=True)
@click.option("--seconds", type=float, default=12, show_default=True)
def command(model: str, chosen: str, repeats: int, seconds: float) -> None:
    """tokens/s with the app attached against `run`, interleaved; needs a GPU."""
    variants = chosen.split(",")
    rounds: list[Round] = []
    for _ in range(repeats):
        rounds.append(measure_round(model, variants, seconds))
        sys.stderr.write(f"{rounds[-1]}\n")
        # The machine may be given back before the last round.
        write_record(RESULTS / "live-overhead.json", summarize(model, variants, rounds))
