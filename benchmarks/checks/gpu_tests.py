"""Runs the tests marked `gpu` or `any_device`; records them in benchmarks/results/gpu-tests.json.

Arguments go to pytest; without any, processes side by side share the GPUs. An interrupted run
records nothing; the same command at the same commit, on the same machine, goes on with the tests
that are left. Each test counts as it ended the first time.
"""

import os
import subprocess
import sys
from pathlib import Path

import rich_click as click
import torch

from benchmarks.checks.kept_outcomes import begin, read_outcomes
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.cli.output import say
from decodescope.variants.machine.environment import environment

RESULT = RESULTS / "gpu-tests.json"
# Of pytest: all passed, some failed, none was left to run.
_COMPLETE = (0, 1, 5)
# Each holds some GB of its memory.
_PROCESSES_OF_A_GPU = 16
# torch.compile starts a process for each core otherwise, in each process of pytest and each rank.
_VARIABLES = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


@click.command("gpu-tests", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run the tests that need or can use a CUDA GPU, and record them; ends as pytest does.

    ARGUMENTS are those of pytest.
    """
    file = cache_folder() / "gpu-tests" / "outcomes.jsonl"
    machine = {name: value for name, value in environment().items() if name != "date"}
    gpus = torch.cuda.device_count()
    before = begin(file, machine | {"gpus": gpus})
    if before:
        say(f"{len(before)} tests have run at this commit: going on with the others")
    words = [sys.executable, "-m", "pytest", *pytest_options(file), *(arguments or shared(gpus))]
    code = subprocess.run(words, cwd=ROOT, env=_VARIABLES | os.environ, check=False).returncode
    tests = read_outcomes(file)
    ran = [outcome for outcome in tests.values() if outcome != "skipped"]
    if not ran or code not in _COMPLETE:
        return code
    record = {
        "gpus": gpus,
        "passed": ran.count("passed"),
        "failed": ran.count("failed"),
        "skipped": len(tests) - len(ran),
        "tests": dict(sorted(tests.items())),
    }
    write_record(RESULT, record, "make test-gpu")
    file.unlink()
    say(f"recorded in {RESULT.relative_to(ROOT)}")
    return int("failed" in ran)


def pytest_options(file: Path) -> list[str]:
    """The options for the tests of a GPU, whose outcomes `file` keeps.

    A path that is a word of its own counts as a place of tests, and pytest configures itself from
    the folder that it is in."""
    plugin = ["-p", "benchmarks.checks.kept_outcomes", f"--kept-outcomes={file}"]
    return [*plugin, "-m", "gpu or any_device"]


def shared(gpus: int) -> list[str]:
    """The options for processes side by side, which compile most of the time."""
    processes = min(os.cpu_count() or 1, _PROCESSES_OF_A_GPU * gpus)
    return ["-n", str(processes), "--dist", "worksteal"]
