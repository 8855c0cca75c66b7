"""Checks the kernels' durations and bytes against the GPU's own counters, with Nsight Compute.

For each variant, one process decodes while decodescope captures three steps, and another one
decodes the same step while `ncu` counts each kernel: its duration (`gpu__time_duration`) and its
bytes from and to DRAM. The kernels are joined one by one, in their order, with equal names and
launch shapes. Under ncu kernels run one by one, so a fused variant is measured without programmatic
dependent launch. Claimed bytes are those of the fused step's operations, else those that the trace
gives for matrix products. `benchmarks/counter_check.py` says which differences count as explained.

Exit code 3 without a GPU, without ncu, or without the right to read counters; 2 if the two
processes of a variant ran different kernels (the record has the others).
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from benchmarks.common import RESULTS, ROOT, has_gpu, write_record
from benchmarks.counted_step import CLAIMS_FILE, POSITION, TRACE_FILE
from benchmarks.counter_check import KernelRow, joined, traced_step
from benchmarks.counter_figures import CountedVariants, VariantFigures, figures, tables
from benchmarks.graph_check import GraphFigures, graph_figures, traced_workloads
from benchmarks.ncu_report import METRICS, count, count_workloads, find_ncu, ncu_version
from decodescope.analyzer.bench.measured_process import running
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.output_paths import check_writable, output_path
from decodescope.analyzer.work_folders import WorkFolder
from decodescope.cli.ending import end_with
from decodescope.cli.output import print_table, say
from decodescope.variants.registry import find_variant

RESULT = RESULTS / "hardware-counters.json"


_Found = TypeVar("_Found", VariantFigures, GraphFigures)
Measure = Callable[[str, str, Path, Path], _Found]


class Refused(Struct, frozen=True):
    """A variant whose two processes could not be joined, and why."""

    variant: str
    measured_as: str
    refused: str


def without_overlap(variant: str) -> str:
    """The variant that launches the same kernels one after the other.

    Raises:
        InputError: an unknown variant.
    """
    spec = find_variant(variant).spec
    if spec is None or spec.kernels != "fused":
        return variant
    return str(replace(spec, without=spec.without | {"pdl"}))


def measure(model: str, variant: str, ncu: Path, folder: Path) -> VariantFigures:
    """Trace and count one step of `variant` in two processes, which write to `folder`.

    Raises:
        InputError: they ran different kernels.
        MissingRequirement: as `count`.
        SystemExit: the traced process failed; its line is on stderr.
    """
    measured = without_overlap(variant)
    program = _traced(model, measured, folder)
    say(f"{variant}: counting")
    counted = count(ncu, program, folder / "ncu.csv")
    traced = traced_step(folder / TRACE_FILE)
    return figures(
        variant, measured, joined(traced.kernels, counted, _claims(folder)), traced.copies
    )


def measure_graphs(model: str, variant: str, ncu: Path, folder: Path) -> GraphFigures:
    """Trace one step of `variant`, and count each of its graph replays as a whole; raises as
    `measure`."""
    program = _traced(model, variant, folder)
    say(f"{variant}: counting whole graphs")
    counted = count_workloads(ncu, program, folder / "ncu.csv")
    traced = traced_workloads(folder / TRACE_FILE)
    return graph_figures(variant, traced, counted, _claims(folder))


def _traced(model: str, variant: str, folder: Path) -> list[str]:
    """Write the trace of `variant` and return the program that ncu is to count."""
    program = [sys.executable, "-m", "benchmarks.counted_step"]
    program += ["--model", model, "--variant", variant]
    say(f"{variant}: tracing")
    trace = [*program, "--trace", str(folder)]
    with running(trace, cwd=ROOT, stdout=sys.stderr, stdin=subprocess.DEVNULL) as process:
        code = process.wait()
    if code:
        raise SystemExit(code if code > 0 else 128 - code)
    return program


def _claims(folder: Path) -> list[int] | None:
    return msgspec.json.decode((folder / CLAIMS_FILE).read_bytes(), type=list[int] | None)


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", type=_names, default="eager,compiled,fused")
    parser.add_argument("--graphs", type=_names, default="compiled,fused+graph")
    parser.add_argument("-o", "--output", type=output_path, default=RESULT)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the traces and ncu's logs there"
    )
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> int:
    """Measure, record and print every variant; the exit codes are those above."""
    arguments = parsed_arguments()
    if not has_gpu("hardware_counters"):
        return 3
    check_writable(arguments.output, "-o")
    for variant in (*arguments.variants, *arguments.graphs):
        without_overlap(variant)
    ncu = find_ncu()
    done: list[VariantFigures] = []
    graphs: list[GraphFigures] = []
    refused: list[Refused] = []

    def record() -> None:
        """After each variant, so that an interrupted run keeps the whole ones."""
        found = {**_head(arguments, ncu), "variants": [*done, *refused], "graphs": graphs}
        write_record(arguments.output, found, _command(arguments))

    def add(variant: str, measure_one: Measure[_Found], found: list[_Found], name: str) -> None:
        with WorkFolder() as temporary:
            folder = temporary if arguments.keep is None else arguments.keep.absolute() / name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                found.append(measure_one(arguments.model, variant, ncu, folder))
            except InputError as error:
                say(f"{name}: {error}")
                refused.append(Refused(variant, name, str(error)))
        record()

    for variant in arguments.variants:
        add(variant, measure, done, without_overlap(variant))
    for variant in arguments.graphs:
        add(variant, measure_graphs, graphs, f"graphs-of-{variant}")
    print_table(CountedVariants(done, graphs), tables)
    return 2 if refused else 0


def _head(arguments: argparse.Namespace, ncu: Path) -> dict[str, Any]:
    return {
        "model": arguments.model,
        "dtype": "bf16",
        "position": POSITION,
        "ncu_version": ncu_version(ncu),
        "metrics": METRICS,
        "columns": KernelRow.__struct_fields__,
    }


def _command(arguments: argparse.Namespace) -> str:
    """Without the places of its output."""
    words = ["python", "-m", "benchmarks.hardware_counters", "--model", arguments.model]
    words += ["--variants", ",".join(arguments.variants), "--graphs", ",".join(arguments.graphs)]
    return shlex.join(words)


if __name__ == "__main__":
    end_with(main)
