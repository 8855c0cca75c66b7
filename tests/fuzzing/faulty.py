"""`python -m tests.fuzzing.faulty CODE ...`: cases that are code, and then those of the script.

Prints the hash of the usual cases first. One process does it all: another one would take as long
to import what this one has.
"""

import hashlib
import runpy
import sys
import time
from unittest.mock import patch

from tests.fuzzing import process, workers
from tests.fuzzing.case import Case
from tests.fuzzing.kinds import case_of

SEED, CASES = 14, 240
_SCRIPT = ["tests/fuzz.py", "--cases", str(CASES), "--seed", str(SEED), "--jobs", "2"]


def hash_of_cases() -> str:
    """The same in every process."""
    cases = repr([case_of(7, number) for number in range(80)])
    return hashlib.sha256(cases.encode()).hexdigest()


def _run_code(bodies: list[str]) -> None:
    with (
        patch.object(workers, "LIMIT_S", 3.0),
        patch.object(workers, "_CASES_A_WORKER", 2),
        patch.object(workers, "case_of", lambda seed, number: Case((bodies[number],))),
        patch.object(process, "main", lambda: exec(sys.argv[1])),
    ):
        for result in workers.run_all(1, list(range(len(bodies))), 2):
            _say(f"{bodies[result.number]} -> {result.code} {result.problem}")


def _end_while_results_arrive() -> None:
    """Each worker ends its case, and takes another one, after it was found to be late."""

    def late_limit(case: Case) -> float:
        time.sleep(0.3)
        return 0.0

    with (
        patch.object(workers, "LIMIT_S", 0.0),
        patch.object(workers, "limit_of", late_limit),
        patch.object(workers, "case_of", lambda seed, number: Case(("time.sleep(0.2)",))),
        patch.object(process, "main", lambda: time.sleep(0.2)),
    ):
        arrived = [result.number for result in workers.run_all(1, range(5), 1)]
    _say(f"arrived {arrived}")


def _say(line: str) -> None:
    """Workers are forked with what has not been written."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _say(hash_of_cases())
    _end_while_results_arrive()
    _run_code(sys.argv[1:])
    sys.argv[:] = _SCRIPT
    runpy.run_path(_SCRIPT[0], run_name="__main__")
