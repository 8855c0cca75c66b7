"""Tokens/s of one variant at several batch sizes, and how much each gains over the first.

Each round builds the variant for every batch in turn on one loaded model, decodes as `run` does
(a prompt, warm-up steps, then timed steps without a profiler) and frees it. Writes
benchmarks/results/batch-scaling.json with the figures of every round; their range is the noise.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import torch
from rich.table import Table

from benchmarks.common import RESULTS, figures_table, has_gpu, share_cell, write_record
from decodescope.analyzer.formatting import milliseconds, rate
from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.cli.ending import end_with
from decodescope.cli.output import print_table
from decodescope.kernels.host.workspace import MAX_BATCH
from decodescope.variants.bench.report import RoundSpread
from decodescope.variants.machine.read_peak import read_peak
from decodescope.variants.measuring.measure import WARM_UP_STEPS
from decodescope.variants.measuring.pacing import step_pacer
from decodescope.variants.measuring.window import mean_bytes_read
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.step import DecodeStep


class BatchRun(msgspec.Struct, frozen=True):
    """One run at one batch size; `bytes_per_step` is the mean of the bytes a step must read."""

    tokens_per_s: float
    step_p50_ns: int
    bytes_per_step: int


class BatchFigures(msgspec.Struct, frozen=True):
    """All runs at one batch size; `over_first` compares tokens/s with the first batch size's in the
    same round."""

    batch: int
    tokens_per_s: RoundSpread
    over_first: RoundSpread
    step_p50_ns: RoundSpread
    bytes_per_step: int
    share_of_peak: float | None


def run_once(step: DecodeStep, workload: DecodeWorkload, prompt: torch.Tensor) -> BatchRun:
    """Decode all of the workload's tokens; the steps after the warm-up are timed."""
    pacer = step_pacer(prompt.device.type)
    step.prefill(prompt)
    for _ in range(WARM_UP_STEPS):
        step.step()
    first = step.position
    times: list[int] = []
    pacer.before_first()
    for _ in range(workload.new_tokens - WARM_UP_STEPS):
        step.step()
        times += pacer.after_step()
    times += pacer.drain()
    return BatchRun(
        tokens_per_s(times, workload.batch),
        step_times(times).p50,
        mean_bytes_read(step, range(first, step.position)),
    )


def run_rounds(
    batches: Sequence[int], rounds: int, run: Callable[[int], BatchRun]
) -> dict[int, list[BatchRun]]:
    """The runs by batch size; a round has one of each, one after the other."""
    runs: dict[int, list[BatchRun]] = {batch: [] for batch in batches}
    for round in range(rounds):
        for batch in batches:
            runs[batch].append(run(batch))
            speed = rate(runs[batch][-1].tokens_per_s)
            sys.stderr.write(f"round {round + 1} of {rounds}, batch {batch}: {speed} tokens/s\n")
    return runs


def batch_figures(
    runs: Mapping[int, Sequence[BatchRun]], peak_bytes_per_s: float | None
) -> tuple[BatchFigures, ...]:
    """The figures of each batch size, in the order of `runs`."""
    first = next(iter(runs.values()))
    return tuple(_figures(batch, found, first, peak_bytes_per_s) for batch, found in runs.items())


def _figures(
    batch: int, runs: Sequence[BatchRun], first: Sequence[BatchRun], peak: float | None
) -> BatchFigures:
    pairs = zip(runs, first, strict=True)
    step_ns = RoundSpread.of([run.step_p50_ns for run in runs])
    bytes_per_step = runs[0].bytes_per_step
    return BatchFigures(
        batch,
        RoundSpread.of([run.tokens_per_s for run in runs]),
        RoundSpread.of([run.tokens_per_s / base.tokens_per_s for run, base in pairs]),
        step_ns,
        bytes_per_step,
        None if peak is None else bytes_per_step * 1e9 / step_ns.median / peak,
    )


def run_batch(variant: str, loaded: LoadedModel, workload: DecodeWorkload) -> BatchRun:
    """Build, run and free the variant for one batch size."""
    step = build_variant(variant, loaded, workload, "cuda")
    run = run_once(step, workload, make_prompt(loaded, workload).cuda())
    del step
    torch.cuda.empty_cache()
    return run


def scaling_table(title: str, figures: Sequence[BatchFigures]) -> Table:
    """One row for each batch size."""
    columns = ("batch", "tokens/s", "range", "times the first", "range", "step ms", "of peak")
    table = figures_table(title, *columns)
    for one in figures:
        speed, over = one.tokens_per_s, one.over_first
        table.add_row(
            str(one.batch),
            rate(speed.median),
            f"{rate(speed.min)} to {rate(speed.max)}",
            f"{over.median:.2f}",
            f"{over.min:.2f} to {over.max:.2f}",
            milliseconds(one.step_p50_ns.median),
            share_cell(one.share_of_peak),
        )
    return table


def parsed_batches(text: str) -> tuple[int, ...]:
    """Batch sizes written as "1,2,4"."""
    try:
        batches = tuple(map(int, text.split(",")))
    except ValueError:
        batches = ()
    known = all(1 <= batch <= MAX_BATCH for batch in batches)
    if not batches or not known or len(set(batches)) < len(batches):
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be different numbers from 1 to {MAX_BATCH}, such as 1,2,4"
        )
    return batches


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b@random")
    parser.add_argument("--variant", default="fused+graph")
    parser.add_argument("--batches", type=parsed_batches, default=(1, 2, 4, 8, 16))
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.tokens <= WARM_UP_STEPS:
        parser.error(f"--tokens {arguments.tokens}: must be more than {WARM_UP_STEPS}")
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: must be at least 1")
    return arguments


def main() -> int:
    """Measure, print and record; 3 without a CUDA device."""
    arguments = parsed_arguments()
    if not has_gpu("batch_scaling"):
        return 3
    peak = read_peak("cuda")
    loaded = load_model(resolve_model(arguments.model), "cuda", "bf16")

    def run(batch: int) -> BatchRun:
        workload = DecodeWorkload(batch, arguments.context, arguments.tokens)
        return run_batch(arguments.variant, loaded, workload)

    peak_bytes_per_s = None if peak is None else peak.bytes_per_s
    figures = batch_figures(run_rounds(arguments.batches, arguments.rounds, run), peak_bytes_per_s)
    record = {
        "model": arguments.model,
        "variant": arguments.variant,
        "dtype": "bf16",
        "context": arguments.context,
        "tokens": arguments.tokens,
        "measured_peak_bytes_per_s": peak_bytes_per_s,
        "batches": figures,
    }
    write_record(RESULTS / "batch-scaling.json", record)
    title = f"{arguments.variant} of {arguments.model}, context {arguments.context}"
    print_table(figures, partial(scaling_table, title))
    return 0


if __name__ == "__main__":
    end_with(main)
