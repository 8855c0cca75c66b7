"""The fuzzer's command line, its summary and its record."""

import argparse
import itertools
import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from decodescope.analyzer.io.files import write_json
from decodescope.variants.machine.environment import environment
from tests.fuzzing.case import Case
from tests.fuzzing.kinds import KINDS, case_of, kind_of
from tests.fuzzing.minimising import minimised
from tests.fuzzing.workers import Result, run_all

_SHOWN_PROBLEMS = 40


def main() -> int:
    """Run the cases; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="tests/fuzz.py")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help="cases of one kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, metavar="K", help="this case alone; keeps its files")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write counts as JSON")
    arguments = parser.parse_args()
    if arguments.case is not None:
        return _repeat(arguments.seed, arguments.case)
    numbers = list(itertools.islice(_numbers(arguments.seed, arguments.only), arguments.cases))
    _make_ready()
    began = time.monotonic()
    results = []
    for result in run_all(arguments.seed, numbers, arguments.jobs):
        results.append(result)
        if result.problem:
            _report(arguments.seed, result, sum(bool(one.problem) for one in results))
    figures = _figures(results, time.monotonic() - began)
    for kind, counts in figures["kinds"].items():
        sys.stderr.write(f"{kind}: {counts}\n")
    failed = figures["failed"]
    sys.stderr.write(f"{len(results)} cases in {figures['seconds']} s, {failed} failed\n")
    if arguments.record is not None:
        _record(arguments.record, figures)
    return 1 if failed else 0


def _numbers(seed: int, kind: str | None) -> Any:
    return (number for number in itertools.count() if kind in (None, kind_of(seed, number)))


def _make_ready() -> None:
    """Import everything and make the whole files once, before workers are forked."""
    import torch
    import transformers.models.llama.modeling_llama  # noqa: F401

    torch.set_num_threads(1)
    for make in KINDS.values():
        for number in range(3):
            make(random.Random(number))


def _report(seed: int, result: Result, failures: int) -> None:
    if failures <= _SHOWN_PROBLEMS:
        repeat = f"python tests/fuzz.py --seed {seed} --case {result.number}"
        sys.stderr.write(f"{result.kind}: {result.problem[:400]}\n    {repeat}\n")


def _figures(results: list[Result], seconds: float) -> dict[str, Any]:
    """Counts by kind and exit code; the slowest case in seconds."""
    kinds = {}
    for kind in KINDS:
        found = [result for result in results if result.kind == kind]
        codes = Counter(str(result.code) for result in found)
        kinds[kind] = {
            "cases": len(found),
            "exit_codes": dict(sorted(codes.items())),
            "failed": sum(bool(result.problem) for result in found),
            "seconds": round(sum(result.seconds for result in found), 1),
            "slowest_s": round(max((result.seconds for result in found), default=0.0), 2),
        }
    failed = sum(bool(result.problem) for result in results)
    return {"cases": len(results), "failed": failed, "seconds": round(seconds), "kinds": kinds}


def _record(path: Path, figures: dict[str, Any]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    command = shlex.join(["python", "tests/fuzz.py", *sys.argv[1:]])
    write_json(
        path, {"command": command, "commit": commit, **figures, "environment": environment()}
    )


def _repeat(seed: int, number: int) -> int:
    """Run one case, make it smaller while it fails in the same way, and keep its files."""
    _make_ready()
    case = case_of(seed, number)
    case, problem = minimised(case)
    folder = Path(f"fuzz-{seed}-{number}")
    _keep(case, folder)
    sys.stderr.write(f"{folder}: decodescope {shlex.join(case.arguments)}\n")
    sys.stderr.write(f"{problem or 'nothing is wrong'}\n")
    return 1 if problem else 0


def _keep(case: Case, folder: Path) -> None:
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
