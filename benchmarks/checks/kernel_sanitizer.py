"""Runs every kernel under compute-sanitizer: memcheck (bounds) and racecheck (shared memory).

Writes benchmarks/results/kernel-sanitizer.json. Models are checked side by side, each in processes
of its own. Each kernel is launched at small shapes that no tile divides, in every dtype and format,
at batch 1 and 33, with and without overlap (PDL), and once more at a position past the end of every
cache, where it must write nothing. With --run it only launches the kernels, for a sanitizer that is
started by hand:
compute-sanitizer --tool memcheck python -m benchmarks kernel-sanitizer --run
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click
import torch

from benchmarks.checks.sanitized_launches import PARTS, launch_part
from benchmarks.harness.processes import require_cuda
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer.errors import MissingRequirement
from decodescope.cli.options import FILE

TOOLS = ("memcheck", "racecheck")
DEFAULT_PATH = Path("/usr/local/cuda/bin/compute-sanitizer")
COMMAND = "benchmarks kernel-sanitizer"
# Room that a process is given: its context, small tensors and the sanitizer's records.
PROCESS_BYTES = 2 << 30


class Ran(NamedTuple):
    """What a process launched, the errors found (None if it did not finish), and how it ended."""

    launches: int | None
    errors: int | None
    exit_code: int


def run_part(under: tuple[str, ...], part: int) -> Ran:
    """Launch one part in a process of its own, under another command."""
    command = [*under, sys.executable, "-m", *COMMAND.split(), "--run", str(part)]
    variables = {
        **os.environ,
        # torch's allocator returns parts of large blocks, whose ends memcheck would not see.
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        # As many processes as cores quantise matrices: with more threads, they wait for each other.
        "OMP_NUM_THREADS": "1",
    }
    start_s = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=ROOT, check=False
    )
    output = done.stdout + done.stderr
    launches = re.search(r"^launches: (\d+)$", output, re.MULTILINE)
    errors = error_count(output) if launches else None
    if done.returncode or (under and errors != 0):
        sys.stderr.write(f"part {part}: {output[-4000:]}\n")
    tool = under[-1] if under else "no tool"
    sys.stderr.write(f"part {part}, {tool}: {time.monotonic() - start_s:.0f} s\n")
    return Ran(int(launches[1]) if launches else None, errors, done.returncode)


def outcome(tool: str, runs: Sequence[Ran]) -> dict[str, Any]:
    """One tool's sums over all parts; null where a part could not finish."""
    return {
        "tool": tool,
        "command": f"compute-sanitizer --tool {tool} python -m {COMMAND} --run",
        "errors": total([run.errors for run in runs]),
        "launches": total([run.launches for run in runs]),
        "exit_code": max((run.exit_code for run in runs), key=abs),
    }


def total(counts: Sequence[int | None]) -> int | None:
    """The sum; None if a count is missing."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def error_count(output: str) -> int | None:
    """The errors and hazards that a sanitizer's summary counts; None without a summary."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error", output)
    hazards = re.search(r"RACECHECK SUMMARY: (\d+) hazard", output)
    found = [int(match[1]) for match in (summary, hazards) if match]
    return max(found) if found else None


def processes_at_once() -> int:
    """As many as have a core and room on the GPU each."""
    memory_bytes = torch.cuda.get_device_properties(0).total_memory
    return max(1, min(os.cpu_count() or 1, memory_bytes // PROCESS_BYTES))


def version(sanitizer: Path) -> str | None:
    """The sanitizer's version; None if it prints none."""
    done = subprocess.run([str(sanitizer), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+\.\d+[\d.]*", done.stdout)
    return found[0] if found else None


@click.command("kernel-sanitizer")
@click.option("--run", is_flag=True, help="Only launch the kernels, and check nothing.")
@click.option("--sanitizer", type=FILE, metavar="FILE", help="Where compute-sanitizer is.")
@click.argument("parts", type=click.IntRange(0, PARTS[-1]), nargs=-1)
def command(run: bool, sanitizer: Path | None, parts: tuple[int, ...]) -> int:
    """Every kernel under compute-sanitizer's memcheck and racecheck; 1 if a tool found an error.

    PARTS are the models whose kernels --run launches, all by default.
    """
    require_cuda("kernel-sanitizer")
    if run:
        launches = [launch_part(part) for part in parts or PARTS]
        sys.stderr.write(f"launches: {sum(launches)}\n")
        return 0
    program = Path(sanitizer or shutil.which("compute-sanitizer") or DEFAULT_PATH)
    if not program.is_file():
        raise MissingRequirement("kernel-sanitizer: no compute-sanitizer; name it with --sanitizer")
    pool = ThreadPoolExecutor(processes_at_once())
    try:
        # An unchecked run compiles the kernels once: both tools find them in Triton's cache.
        if any(run.exit_code for run in pool.map(partial(run_part, ()), PARTS)):
            return 1
        under = {tool: (str(program), "--tool", tool) for tool in TOOLS}
        runs = {tool: pool.map(partial(run_part, under[tool]), PARTS) for tool in TOOLS}
        outcomes = [outcome(tool, list(parts)) for tool, parts in runs.items()]
    finally:
        # Where a signal ends the command, the parts in the queue are not started.
        pool.shutdown(cancel_futures=True)
    record = {
        "sanitizer_version": version(program),
        "tools": outcomes,
    }
    write_record(RESULTS / "kernel-sanitizer.json", record, f"python -m {COMMAND}")
    return 0 if all(one["errors"] == 0 for one in outcomes) else 1
