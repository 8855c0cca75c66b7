"""The record of a run of the fuzzer, which another run may go on with."""

import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import write_json
from decodescope.variants.machine.environment import environment
from tests.fuzzing.kinds import kind_of
from tests.fuzzing.workers import Result


@dataclass
class Record:
    """Counts by kind and exit code, with the slowest case in seconds; the numbers of the failed
    cases. The cases of `seed` go on with number `next`. `runs` says which commit ran how many.
    `mended` cases failed at first, and passed when they ran again."""

    seed: int
    only: list[str] | None
    next: int = 0
    cases: int = 0
    failed: int = 0
    mended: int = 0
    seconds: float = 0.0
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path | None, seed: int, only: list[str] | None, resume: bool) -> "Record":
        """That in the file if `resume`, else a new one.

        Raises:
            InputError: the record is of another seed, or of other kinds.
        """
        record = cls(seed, only)
        if resume and path is not None and path.exists():
            kept = json.loads(path.read_bytes())
            fields = cls.__dataclass_fields__.keys() & kept.keys()
            record = cls(**{name: kept[name] for name in fields})
            # That of the file is always the last run's.
            record.runs[-1].setdefault("environment", kept["environment"])
            if (record.seed, record.only) != (seed, only):
                raise InputError(
                    f"{path}: of seed {record.seed}, kinds {record.only}; name another"
                )
        record.runs.append({"commit": _commit(), "cases": 0, "seconds": 0.0})
        return record

    def numbers(self, count: int) -> Sequence[int]:
        """The next `count` cases."""
        if self.only is None:
            return range(self.next, self.next + count)
        numbers = itertools.count(self.next)
        chosen = (number for number in numbers if kind_of(self.seed, number) in self.only)
        return list(itertools.islice(chosen, count))

    def add(self, results: Sequence[Result], seconds: float) -> None:
        empty = {"cases": 0, "exit_codes": {}, "failed": 0, "seconds": 0.0, "slowest_s": 0.0}
        for result in results:
            counts = self.kinds.setdefault(result.kind, empty | {"exit_codes": {}})
            codes, code = counts["exit_codes"], str(result.code)
            codes[code] = codes.get(code, 0) + 1
            counts["cases"] += 1
            counts["failed"] += bool(result.problem)
            counts["seconds"] = round(counts["seconds"] + result.seconds, 6)
            counts["slowest_s"] = max(counts["slowest_s"], round(result.seconds, 2))
        failures = [result.number for result in results if result.problem]
        self.failures += failures
        self.failed += len(failures)
        for holder in (self, self.runs[-1]):
            _count(holder, len(results), seconds)

    def mend(self, results: Sequence[Result]) -> None:
        """The failed cases have run again."""
        self.failures = [result.number for result in results if result.problem]
        self.mended += len(results) - len(self.failures)
        self.failed = len(self.failures)
        for kind, counts in self.kinds.items():
            counts["failed"] = sum(bool(each.problem) for each in results if each.kind == kind)

    def write(self, path: Path) -> None:
        """The environment is that of the last run that had cases."""
        last = next((run for run in reversed(self.runs) if run["cases"]), {})
        where = last.get("environment") or environment()
        command = shlex.join(["python", "tests/fuzz.py", *sys.argv[1:]])
        write_json(path, {"command": command, **asdict(self), "environment": where})


def _count(holder: Any, cases: int, seconds: float) -> None:
    if isinstance(holder, Record):
        holder.cases += cases
        holder.seconds = round(holder.seconds + seconds, 1)
    else:
        holder["cases"] += cases
        holder["seconds"] = round(holder["seconds"] + seconds, 1)


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
