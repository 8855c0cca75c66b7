"""Checks the kernels' durations and bytes against the GPU's own counters, with Nsight Compute.

For each variant, one process decodes while decodescope captures three steps, and another one
decodes the same steps while `ncu` counts each kernel: its duration (`gpu__time_duration`) and its
bytes from and to DRAM. The kernels are joined one by one, in their order, with equal names and
launch shapes. Under ncu kernels run one by one, so a fused variant is measured without programmatic
dependent launch. Claimed bytes are those of the fused step's operations, else those that the trace
gives for matrix products. `counter_check.py` says which differences count as explained.

Exit code 3 without a GPU, without ncu, or without the right to read counters; 2 if the two
processes of a variant ran different kernels (the record has the others).
"""

import argparse
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.counters.counted_step import CLAIMS_FILE, POSITION, TRACE_FILE
from benchmarks.counters.counter_check import KernelRow, counted_kernels, joined, traced_step
from benchmarks.counters.counter_figures import VariantFigures, figures, tables
from benchmarks.counters.ncu_report import METRICS, count, find_ncu, ncu_version
from benchmarks.harness.common import RESULTS, ROOT, has_gpu, write_record
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.cli.ending import end_with
from decodescope.cli.output import print_table, say
from decodescope.variants.registry import find_variant

RESULT = RESULTS / "hardware-counters.json"


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
    """Trace and count the steps of `variant` in two processes, which write to `folder`.

    Raises:
        InputError: they ran different kernels.
        MissingRequirement: as `count`.
        SystemExit: the traced process failed; its line is on stderr.
    """
    measured = without_overlap(variant)
    program = [sys.executable, "-m", "benchmarks.counters.counted_step"]
    program += ["--model", model, "--variant", measured]
    say(f"{variant}: tracing")
    trace = [*program, "--trace", str(folder)]
    with running(trace, cwd=ROOT, stdout=sys.stderr, stdin=subprocess.DEVNULL) as process:
        code = process.wait()
    if code:
        raise SystemExit(code if code > 0 else 128 - code)
    say(f"{variant}: counting")
    counted = counted_kernels(count(ncu, program, folder / "ncu.csv"))
    traced = traced_step(folder / TRACE_FILE)
    claims = msgspec.json.decode((folder / CLAIMS_FILE).read_bytes(), type=list[int] | None)
    both = joined(traced.kernels, counted, claims)
    return figures(variant, measured, both, traced.copies)


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="eager,compiled,fused")
    parser.add_argument("-o", "--output", type=output_path, default=RESULT)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the traces and ncu's logs there"
    )
    return parser.parse_args()


def main() -> int:
    """Measure, record and print every variant; the exit codes are those above."""
    arguments = parsed_arguments()
    if not has_gpu("hardware_counters"):
        return 3
    check_writable(arguments.output, "-o")
    variants = arguments.variants.split(",")
    for variant in variants:
        without_overlap(variant)
    ncu = find_ncu()
    # Without the places of its output.
    words = ["python", "-m", "benchmarks.counters.hardware_counters", "--model", arguments.model]
    command = shlex.join([*words, "--variants", arguments.variants])
    record = {
        "model": arguments.model,
        "dtype": "bf16",
        "position": POSITION,
        "ncu_version": ncu_version(ncu),
        "metrics": METRICS,
        "columns": KernelRow.__struct_fields__,
    }
    done: list[VariantFigures] = []
    refused: list[Refused] = []
    for variant in variants:
        with WorkFolder() as temporary:
            folder = temporary if arguments.keep is None else arguments.keep.absolute() / variant
            folder.mkdir(parents=True, exist_ok=True)
            try:
                done.append(measure(arguments.model, variant, ncu, folder))
            except InputError as error:
                say(f"{variant}: {error}")
                refused.append(Refused(variant, without_overlap(variant), str(error)))
        # After each variant, so that an interrupted run keeps the whole ones.
        write_record(arguments.output, {**record, "variants": [*done, *refused]}, command)
    print_table(done, tables)
    return 2 if refused else 0


if __name__ == "__main__":
    end_with(main)
