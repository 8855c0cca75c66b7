"""Tokens/s of variants over numbers of ranks, each a `decodescope run --tp N`.

Each round runs every variant with every number of ranks in turn. Writes
benchmarks/results/ranks-<model>.json: every figure, how much each gains over the same variant with
the first number of ranks that ran it, and what the last run's window says of communication.
"""

import shlex
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import rich_click as click
from rich.table import Table

from benchmarks.harness.processes import printed_json, require_cuda
from benchmarks.harness.records import RESULTS, write_record
from benchmarks.harness.tables import figures_table, share_cell
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.analyzer.text.formatting import milliseconds, rate
from decodescope.cli.options import number_option
from decodescope.cli.output import print_table
from decodescope.variants.tuning.report import RoundSpread

# A variant with so many ranks.
Case = tuple[str, int]


def cases_of(variants: str, ranks: str, but: str) -> list[Case]:
    """The product of both, without those named in `but` as "VARIANT:RANKS".

    Raises:
        InputError: a number of ranks is none, or nothing is left.
    """
    if not all(word.isdecimal() and int(word) > 0 for word in ranks.split(",")):
        raise InputError(f"--ranks {ranks!r}: must be numbers from 1, such as 1,2")
    left_out = but.split(",") if but else []
    every = product(variants.split(","), map(int, ranks.split(",")))
    cases = [case for case in every if "{}:{}".format(*case) not in left_out]
    if not cases:
        raise InputError("--without: leaves nothing to measure")
    return cases


def figures_of(runs: dict[Case, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The figures of each case, in the order of `runs`, and its last run's window."""
    rates = {
        case: RoundSpread.of([run["tokens_per_s"] for run in found]) for case, found in runs.items()
    }
    first = {case[0]: case for case in reversed(runs)}
    figures = []
    for (variant, ranks), found in runs.items():
        own, last = rates[variant, ranks], found[-1]
        kept = ("step_ns", "bytes_per_step", "bandwidth", "answer", "health", "communication")
        gains = own.over(rates[first[variant]])
        same = {"variant": variant, "ranks": ranks, "tokens_per_s": own, "over_first": gains}
        figures.append(same | {name: last[name] for name in kept})
    return figures


def ranks_table(model: str, figures: list[dict[str, Any]]) -> Table:
    columns = ("ranks", "tokens/s", "range", "times the first", "step ms", "of peak")
    table = figures_table(model, "variant", *columns, names=1)
    for one in figures:
        speed: RoundSpread = one["tokens_per_s"]
        table.add_row(
            one["variant"],
            str(one["ranks"]),
            rate(speed.median),
            f"{rate(speed.min)} to {rate(speed.max)}",
            f"{one['over_first'].median:.2f}",
            milliseconds(one["step_ns"]["p50"]),
            share_cell(one["bandwidth"]["mbu"]),
        )
    return table


@click.command("ranks")
@click.option("--model", metavar="M", default="llama-3.1-8b@random", show_default=True)
@click.option("--variants", metavar="A,B,...", default="fused+graph", show_default=True)
@click.option("--ranks", metavar="1,2", default="1,2", show_default=True)
@click.option("--without", metavar="A:1,...", default="", help="What is not run: variant:ranks.")
@click.option("--ep", is_flag=True, help="Experts whole over several ranks.")
@number_option("--rounds", default=3, show_default=True)
@click.option(
    "-o", "--output", metavar="FILE", type=output_path, help="Instead of ranks-<model>.json."
)
def command(
    model: str,
    variants: str,
    ranks: str,
    without: str,
    ep: bool,
    rounds: int,
    output: Path | None,
) -> None:
    """tokens/s of variants over numbers of ranks, rounds interleaved; needs as many GPUs."""
    path = output or RESULTS / f"ranks-{model.replace('@', '-').replace('/', '-')}.json"
    check_writable(path, "-o")
    cases = cases_of(variants, ranks, without)
    require_cuda("ranks")
    words = ["python", "-m", "benchmarks", "ranks", "--model", model, "--variants", variants]
    words += ["--ranks", ranks, *(["--without", without] if without else []), *["--ep"] * ep]
    repeating = shlex.join([*words, "--rounds", str(rounds)])
    runs: dict[Case, list[dict[str, Any]]] = defaultdict(list)
    figures: list[dict[str, Any]] = []
    for round in range(rounds):
        for variant, size in cases:
            own = ["--model", model, "--variant", variant, "--tp", str(size)]
            run = printed_json("run", *own, *["--ep"] * (ep and size > 1))
            runs[variant, size].append(run)
            speed = rate(run["tokens_per_s"])
            sys.stderr.write(f"round {round + 1} of {rounds}, {variant}, tp {size}: {speed}/s\n")
        # After each round, so that an interrupted run keeps the whole ones.
        figures = figures_of(runs)
        write_record(path, {"model": model, "rounds": round + 1, "figures": figures}, repeating)
    print_table(figures, lambda found: ranks_table(model, found))
