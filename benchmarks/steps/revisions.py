"""Compares this checkout with another revision of it: tokens/s, and each kernel's time.

Each round runs `decodescope run` of every model and variant with both revisions in turn, each run
in a process of its own; the order changes from round to round. With `--kernels` it also runs
`python -m benchmarks kernels` of every model with both, as often. Writes
benchmarks/results/revisions.json: every figure, the ratio this ÷ base of paired rounds with its
95 % interval, and the noise: the largest ratio of two rounds of one revision.
"""

import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import rich_click as click

from benchmarks.harness.processes import printed_json
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer.comparing.bootstrap import paired_ratio
from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.cli.options import number_option

RESULT = RESULTS / "revisions.json"
BASE, THIS = "base", "this"

Figures = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured of both revisions; models and variants are separated by commas."""

    models: str
    variants: str
    rounds: int
    kernels: bool


def check_out(revision: str, folder: Path) -> str:
    """Unpack the files of `revision` into `folder`; returns the commit."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.check_output([*git, "rev-parse", f"{revision}^{{commit}}"], text=True)
    archive = subprocess.check_output([*git, "archive", commit.strip()])
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return commit.strip()


def tokens_per_s(checkout: Path, model: str, variant: str) -> dict[str, float]:
    """One run's rate, by the name of what was run."""
    run = printed_json("run", "--model", model, "--variant", variant, checkout=checkout)
    return {f"{model} {variant}": run["tokens_per_s"]}


def kernels_per_s(checkout: Path, model: str) -> dict[str, float]:
    """Launches per second of each kernel from cold memory, with and without overlap."""
    bench = printed_json("kernels", "--model", model, program="benchmarks", checkout=checkout)
    rates = {}
    for kernel, way in product(bench["kernels"], ("serial", "overlapped")):
        if kernel[way] is not None:
            rates[f"{model} {kernel['operation']} {way}"] = 1e9 / kernel[way]["median_ns"]
    return rates


def interleaved(options: Measured, base: Path) -> Iterator[Figures]:
    """Every figure of both revisions so far, after each round."""
    sides = [(BASE, base), (THIS, ROOT)]
    figures: Figures = defaultdict(lambda: {BASE: [], THIS: []})
    for _ in range(options.rounds):
        for model in options.models.split(","):
            for variant in filter(None, options.variants.split(",")):
                for side, checkout in sides:
                    add(figures, side, tokens_per_s(checkout, model, variant))
            for side, checkout in sides if options.kernels else ():
                add(figures, side, kernels_per_s(checkout, model))
        sides.reverse()
        yield figures


def add(figures: Figures, side: str, found: dict[str, float]) -> None:
    """Append one round's figures of one revision."""
    for name, value in found.items():
        figures[name][side].append(value)
        sys.stderr.write(f"{side}: {name}: {value:,.1f}/s\n")


def summary(figures: Figures) -> dict[str, Any]:
    """For each name the rounds of both, their ratio with its interval, and the noise."""
    return {
        name: {
            **sides,
            "this_over_base": sum(sides[THIS]) / sum(sides[BASE]),
            "interval": paired_ratio(sides[BASE], sides[THIS]),
            "noise": max(max(rounds) / min(rounds) for rounds in sides.values()),
        }
        for name, sides in figures.items()
    }


def repeating_command(base: str, options: Measured) -> str:
    """The command that measures this again, without the place of its output."""
    words = ["python", "-m", "benchmarks", "revisions", "--base", base]
    words += ["--models", options.models, "--variants", options.variants]
    words += ["--rounds", str(options.rounds), *(["--kernels"] if options.kernels else [])]
    return shlex.join(words)


@click.command("revisions")
@click.option("--base", metavar="REVISION", required=True, help="The revision to compare with.")
@click.option(
    "--models",
    metavar="M,N,...",
    default="llama-3.2-1b@random,llama-3.1-8b@random",
    show_default=True,
)
@click.option("--variants", metavar="A,B,...", default="fused+graph,compiled", show_default=True)
@number_option("--rounds", default=3, show_default=True)
@click.option("--kernels", is_flag=True, help="Measure each kernel as well.")
@click.option("-o", "--output", metavar="FILE", type=output_path, default=RESULT)
def command(base: str, output: Path, **given: Any) -> None:
    """This checkout against another revision of it, in turn: tokens/s, and each kernel's time."""
    check_writable(output, "-o")
    options = Measured(**given)
    with tempfile.TemporaryDirectory() as folder:
        commit = check_out(base, Path(folder))
        for rounds, figures in enumerate(interleaved(options, Path(folder)), start=1):
            # After each round, so that an interrupted run keeps the whole ones.
            record = {"base_commit": commit, "rounds": rounds, "figures": summary(figures)}
            write_record(output, record, repeating_command(base, options))
