"""Compares this checkout with another revision of it: tokens/s, and each kernel's time.

Each round runs `decodescope run` of every model and variant with both revisions in turn, each run
in a process of its own; the order changes from round to round. With `--kernels` it also runs
`python -m benchmarks kernels` of every model with both, as often. Writes
benchmarks/results/revisions.json: every figure, the ratio this ÷ base of paired rounds with its
95 % interval, and the noise: the largest ratio of two rounds of one revision.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.harness.common import RESULTS, ROOT, printed_json, write_record
from decodescope.analyzer.comparing.bootstrap import paired_ratio
from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.cli.ending import end_with

RESULT = RESULTS / "revisions.json"
BASE, THIS = "base", "this"

Figures = dict[str, dict[str, list[float]]]


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


def interleaved(arguments: argparse.Namespace, base: Path) -> Iterator[Figures]:
    """Every figure of both revisions so far, after each round."""
    sides = [(BASE, base), (THIS, ROOT)]
    figures: Figures = defaultdict(lambda: {BASE: [], THIS: []})
    for _ in range(arguments.rounds):
        for model in arguments.models.split(","):
            for variant in filter(None, arguments.variants.split(",")):
                for side, checkout in sides:
                    add(figures, side, tokens_per_s(checkout, model, variant))
            for side, checkout in sides if arguments.kernels else ():
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


def repeating_command(arguments: argparse.Namespace) -> str:
    """The command that measures this again, without the place of its output."""
    words = ["python", "-m", "benchmarks.steps.revisions", "--base", arguments.base]
    words += ["--models", arguments.models, "--variants", arguments.variants]
    words += ["--rounds", str(arguments.rounds), *(["--kernels"] if arguments.kernels else [])]
    return shlex.join(words)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="the revision to compare with")
    parser.add_argument("--models", default="llama-3.2-1b@random,llama-3.1-8b@random")
    parser.add_argument("--variants", default="fused+graph,compiled")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", action="store_true", help="measure each kernel as well")
    parser.add_argument("-o", "--output", type=output_path, default=RESULT)
    arguments = parser.parse_args()
    check_writable(arguments.output, "-o")
    with tempfile.TemporaryDirectory() as folder:
        commit = check_out(arguments.base, Path(folder))
        for rounds, figures in enumerate(interleaved(arguments, Path(folder)), start=1):
            # After each round, so that an interrupted run keeps the whole ones.
            record = {"base_commit": commit, "rounds": rounds, "figures": summary(figures)}
            write_record(arguments.output, record, repeating_command(arguments))


if __name__ == "__main__":
    end_with(main)
