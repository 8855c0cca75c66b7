"""The fuzzer's command line, its summary and its record."""

import argparse
import importlib
import os
import pkgutil
import random
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import decodescope
from tests.fuzzing.case import Case
from tests.fuzzing.corpus import corpus, keep
from tests.fuzzing.kinds import KINDS, case_of
from tests.fuzzing.minimising import minimised
from tests.fuzzing.record import Record
from tests.fuzzing.workers import Result, run_all

_SHOWN_PROBLEMS = 40
_RECORD_EACH_S = 10.0


def main() -> int:
    """Run the cases; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="tests/fuzz.py")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, nargs="+", help="cases of these kinds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, metavar="K", help="this case alone; keeps its files")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write counts as JSON")
    parser.add_argument(
        "--resume", action="store_true", help="go on where the record of this seed ended"
    )
    parser.add_argument(
        "--again", action="store_true", help="run only those that failed in the record of this seed"
    )
    arguments = parser.parse_args()
    if arguments.case is not None:
        return _repeat(arguments.seed, arguments.case)
    resume = arguments.resume or arguments.again
    record = Record.read(arguments.record, arguments.seed, arguments.only, resume)
    _make_ready()
    if arguments.again:
        return _again(record, arguments.jobs, arguments.record)
    left = arguments.cases
    if not record.cases:
        left -= len(corpus())
        record.add(list(run_all(arguments.seed, range(-len(corpus()), 0), 1)), 0.0)
    _run(record, record.numbers(max(left, 0)), arguments.jobs, arguments.record)
    for kind, counts in record.kinds.items():
        sys.stderr.write(f"{kind}: {counts}\n")
    sys.stderr.write(f"{record.cases} cases in {record.seconds:.0f} s, {record.failed} failed\n")
    return 1 if record.failed else 0


def _run(record: Record, numbers: Sequence[int], jobs: int, path: Path | None) -> None:
    """Run the cases, and write the record now and then: a run that is killed loses little."""
    began, results, failures = time.monotonic(), list[Result](), 0
    for result in run_all(record.seed, numbers, jobs):
        results.append(result)
        if result.problem:
            failures += 1
            _report(record.seed, result, failures)
        seconds = time.monotonic() - began
        if seconds > _RECORD_EACH_S or result.number == numbers[-1]:
            record.next = result.number + 1
            record.add(results, seconds)
            began, results = began + seconds, []
            if path is not None:
                record.write(path)


def _again(record: Record, jobs: int, path: Path | None) -> int:
    results = []
    for result in run_all(record.seed, record.failures, jobs):
        results.append(result)
        if result.problem:
            _report(record.seed, result, 0)
    record.mend(results)
    if path is not None:
        record.write(path)
    sys.stderr.write(f"{len(results)} cases again, {record.failed} failed\n")
    return 1 if record.failed else 0


def _make_ready() -> None:
    """Import everything and make the whole files once, before workers are forked."""
    import torch

    for module in pkgutil.walk_packages(decodescope.__path__, "decodescope."):
        importlib.import_module(module.name)
    torch.set_num_threads(1)
    for make in KINDS.values():
        for number in range(3):
            make(random.Random(number))


def _report(seed: int, result: Result, failures: int) -> None:
    if failures <= _SHOWN_PROBLEMS:
        repeat = f"python tests/fuzz.py --seed {seed} --case {result.number}"
        sys.stderr.write(f"{result.kind}: {result.problem[:400]}\n    {repeat}\n")


def _repeat(seed: int, number: int) -> int:
    """Run one case, make it smaller while it fails in the same way, and keep its files."""
    _make_ready()
    case = case_of(seed, number)
    case, problem = minimised(case)
    folder = Path(f"fuzz-{seed}-{number}")
    _write(case, folder)
    if problem:
        sys.stderr.write(f"kept as {keep(case)}\n")
    sys.stderr.write(f"{folder}: decodescope {shlex.join(case.arguments)}\n")
    sys.stderr.write(f"{problem or 'nothing is wrong'}\n")
    return 1 if problem else 0


def _write(case: Case, folder: Path) -> None:
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
