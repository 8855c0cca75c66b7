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

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import rich_click as click
from msgspec import Struct

from benchmarks.counters.counted_step import CLAIMS_FILE, POSITION, TRACE_FILE
from benchmarks.counters.counter_check import KernelRow, counted_kernels, joined, traced_step
from benchmarks.counters.counter_figures import VariantFigures, figures, tables
from benchmarks.counters.ncu_report import METRICS, count, find_ncu, ncu_version
from benchmarks.harness.processes import require_cuda
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.io.output_paths import check_writable, output_path
from decodescope.analyzer.io.work_folders import WorkFolder
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


@click.command("hardware-counters")
@click.option("--model", metavar="M", default="llama-3.2-1b@random", show_default=True)
@click.option(
    "--variants", "chosen", metavar="A,B,...", default="eager,compiled,fused", show_default=True
)
@click.option("-o", "--output", metavar="FILE", type=output_path, default=RESULT)
@click.option(
    "--keep", type=Path, metavar="FOLDER", help="Keep the traces and the logs of ncu there."
)
def command(model: str, chosen: str, output: Path, keep: Path | None) -> int:
    """Our figures of each kernel beside those of Nsight Compute; needs a GPU and ncu."""
    require_cuda("hardware-counters")
    check_writable(output, "-o")
    variants = chosen.split(",")
    for variant in variants:
        without_overlap(variant)
    ncu = find_ncu()
    # Without the places of its output.
    words = ["python", "-m", "benchmarks", "hardware-counters", "--model", model]
    again = shlex.join([*words, "--variants", chosen])
    record = {
        "model": model,
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
            folder = temporary if keep is None else keep.absolute() / variant
            folder.mkdir(parents=True, exist_ok=True)
            try:
                done.append(measure(model, variant, ncu, folder))
            except InputError as error:
                say(f"{variant}: {error}")
                refused.append(Refused(variant, without_overlap(variant), str(error)))
        # After each variant, so that an interrupted run keeps the whole ones.
        write_record(output, {**record, "variants": [*done, *refused]}, again)
    print_table(done, tables)
    return 2 if refused else 0
