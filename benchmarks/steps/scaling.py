"""Tokens/s of one variant over batch sizes, context lengths or models, and how much each gains over
the first.

Each round builds the variant for every value in turn, decodes as `run` does (a prompt, warm-up
steps, then timed steps without a profiler) and frees it; the models stay loaded. Writes
benchmarks/results/batch-scaling.json, context-scaling.json or model-scaling.json with the figures
of every round; their range is the noise.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
import rich_click as click
import torch
from rich.table import Table

from benchmarks.harness.processes import require_cuda
from benchmarks.harness.records import RESULTS, write_record
from benchmarks.harness.tables import figures_table, share_cell
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.analyzer.text.formatting import milliseconds, rate
from decodescope.cli.options import number_option
from decodescope.cli.output import print_table, say
from decodescope.kernels.host.workspace import MAX_BATCH
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import read_peak
from decodescope.variants.measuring.measure import WARM_UP_STEPS, step_pacer
from decodescope.variants.measuring.window import mean_bytes_read
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.tuning.report import RoundSpread

Axis = Literal["batch", "context", "model"]
DEFAULTS: dict[Axis, str] = {
    "batch": "1,2,4,8,16",
    "context": "128,512,2048,8192,32768",
    "model": "qwen2.5-0.5b@random,qwen3-0.6b@random,llama-3.2-1b@random,llama-3.1-8b@random",
}
PLURALS: dict[Axis, str] = {"batch": "batches", "context": "contexts", "model": "models"}


class Point(msgspec.Struct, frozen=True):
    """What is decoded."""

    model: str
    batch: int
    context: int

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch}, context {self.context}"


class Run(msgspec.Struct, frozen=True):
    """One run; `bytes_per_step` is the mean of the bytes a step must read."""

    tokens_per_s: float
    step_p50_ns: int
    bytes_per_step: int


class Figures(msgspec.Struct, frozen=True):
    """All runs of one value; `over_first` compares tokens/s with the first value's in the same
    round."""

    tokens_per_s: RoundSpread
    over_first: RoundSpread
    step_p50_ns: RoundSpread
    bytes_per_step: int
    share_of_peak: float | None


def run_once(step: DecodeStep, workload: DecodeWorkload, prompt: torch.Tensor) -> Run:
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
    return Run(
        tokens_per_s(times, workload.batch),
        step_times(times).p50,
        mean_bytes_read(step, range(first, step.position)),
    )


def run_rounds(
    points: Sequence[Point], rounds: int, run: Callable[[Point], Run]
) -> dict[Point, list[Run]]:
    """The runs of each point; a round has one of each, one after the other."""
    runs: dict[Point, list[Run]] = {point: [] for point in points}
    for round in range(rounds):
        for point in points:
            runs[point].append(run(point))
            speed = rate(runs[point][-1].tokens_per_s)
            say(f"round {round + 1} of {rounds}, {point}: {speed} tokens/s")
    return runs


def figures_of(
    runs: Mapping[Point, Sequence[Run]], peak_bytes_per_s: float | None
) -> dict[Point, Figures]:
    """The figures of each point, in the order of `runs`."""
    first = next(iter(runs.values()))
    return {point: _figures(found, first, peak_bytes_per_s) for point, found in runs.items()}


def _figures(runs: Sequence[Run], first: Sequence[Run], peak: float | None) -> Figures:
    pairs = zip(runs, first, strict=True)
    step_ns = RoundSpread.of([run.step_p50_ns for run in runs])
    bytes_per_step = runs[0].bytes_per_step
    return Figures(
        RoundSpread.of([run.tokens_per_s for run in runs]),
        RoundSpread.of([run.tokens_per_s / base.tokens_per_s for run, base in pairs]),
        step_ns,
        bytes_per_step,
        None if peak is None else bytes_per_step * 1e9 / step_ns.median / peak,
    )


def run_point(variant: str, loaded: LoadedModel, point: Point, tokens: int) -> Run:
    """Build, run and free the variant for one point."""
    workload = DecodeWorkload(point.batch, point.context, tokens)
    step = build_variant(variant, loaded, workload, "cuda")
    run = run_once(step, workload, make_prompt(loaded, workload).cuda())
    del step
    torch.cuda.empty_cache()
    return run


def scaling_table(title: str, over: Axis, figures: Mapping[Point, Figures]) -> Table:
    """One row for each value."""
    columns = ("tokens/s", "range", "times the first", "range", "step ms", "of peak")
    table = figures_table(title, over, *columns, names=1)
    for point, one in figures.items():
        speed, times = one.tokens_per_s, one.over_first
        table.add_row(
            str(getattr(point, over)),
            rate(speed.median),
            f"{rate(speed.min)} to {rate(speed.max)}",
            f"{times.median:.2f}",
            f"{times.min:.2f} to {times.max:.2f}",
            milliseconds(one.step_p50_ns.median),
            share_cell(one.share_of_peak),
        )
    return table


def parsed_values(over: Axis, text: str) -> tuple[str, ...] | tuple[int, ...]:
    """Values written as "1,2,4".

    Raises:
        InputError: no values, one twice, or a number out of range.
    """
    words = tuple(text.split(","))
    if not all(words) or len(set(words)) < len(words):
        raise InputError(f"--values {text!r}: must be different values, such as 1,2,4")
    if over == "model":
        return words
    most = MAX_BATCH if over == "batch" else None
    numbers = tuple(int(word) if word.isdecimal() else 0 for word in words)
    if not all(1 <= number <= (most or number) for number in numbers):
        upper = f" to {most}" if most else ""
        raise InputError(f"--values {text!r}: must be numbers from 1{upper} of a {over}")
    return numbers


@click.command("scaling")
@click.argument("over", type=click.Choice(list(DEFAULTS)), default="batch")
@click.option("--values", metavar="1,2,4", help="Of what is varied, separated by commas.")
@click.option("--model", metavar="M", default="llama-3.1-8b@random", show_default=True)
@click.option("--variant", metavar="V", default="fused+graph", show_default=True)
@number_option("--batch", default=1, show_default=True)
@number_option("--context", default=128, show_default=True)
@number_option("--tokens", type=click.IntRange(WARM_UP_STEPS + 1), default=128, show_default=True)
@number_option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def command(
    over: Axis,
    values: str | None,
    model: str,
    variant: str,
    batch: int,
    context: int,
    tokens: int,
    rounds: int,
) -> None:
    """tokens/s over OVER (batch, context or model), rounds interleaved; needs a GPU."""
    chosen = parsed_values(over, values or DEFAULTS[over])
    fixed = Point(model, batch, context)
    points = [msgspec.structs.replace(fixed, **{over: value}) for value in chosen]
    require_cuda("scaling")
    peak = read_peak()
    peak_bytes_per_s = None if peak is None else peak.bytes_per_s
    sources = {point.model: resolve_model(point.model) for point in points}
    loaded = {name: load_model(source, "cuda", "bf16") for name, source in sources.items()}

    def run(point: Point) -> Run:
        with memory_errors(f"decoding {point}", "cuda"):
            return run_point(variant, loaded[point.model], point, tokens)

    figures = figures_of(run_rounds(points, rounds, run), peak_bytes_per_s)
    same = {name: value for name, value in msgspec.structs.asdict(fixed).items() if name != over}
    record = {
        "variant": variant,
        "dtype": "bf16",
        **same,
        "tokens": tokens,
        "measured_peak_bytes_per_s": peak_bytes_per_s,
        PLURALS[over]: [
            {over: getattr(point, over), **msgspec.structs.asdict(one)}
            for point, one in figures.items()
        ],
    }
    write_record(RESULTS / f"{over}-scaling.json", record)
    title = f"{variant}, " + ", ".join(f"{name} {value}" for name, value in same.items())
    print_table(figures, partial(scaling_table, title, over))
