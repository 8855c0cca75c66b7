"""Forked workers that run cases, and the watch over them: no case may take longer than a limit."""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.fuzzing.case import Case
from tests.fuzzing.kinds import case_of, kind_of
from tests.fuzzing.process import Runner

LIMIT_S = 10.0
# A live run starts a process that imports torch and transformers.
LIVE_LIMIT_S = 60.0
# What a library keeps of each case would otherwise add up.
_CASES_A_WORKER = 3000
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Result:
    """How case `number` ended; `problem` is empty if all was well, `code` None if it was killed."""

    number: int
    kind: str
    code: int | None
    problem: str
    seconds: float


class _Worker:
    """A forked process with cases to run, one after another."""

    def __init__(self, seed: int, numbers: list[int], root: Path) -> None:
        self.seed = seed
        self.left = numbers
        self.connection, theirs = _FORK.Pipe(duplex=False)
        self.process: BaseProcess = _FORK.Process(
            target=_run_cases, args=(seed, numbers[:_CASES_A_WORKER], root, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.since = time.monotonic()

    def results(self, now: float) -> Iterator[Result]:
        """What has arrived, or the end of a worker that hangs or died."""
        try:
            while self.connection.poll():
                code, problem, seconds = self.connection.recv()
                yield self._ended(code, problem, seconds)
                self.since = now
        except EOFError:
            self.process.join()
            if self.process.exitcode:
                yield self._ended(None, f"the process ended with {self.process.exitcode}", 0.0)
        if now - self.since > LIMIT_S and self.process.is_alive():
            limit_s = limit_of(case_of(self.seed, self.left[0]))
            if now - self.since > limit_s:
                self.process.kill()
                self.process.join()
                yield self._ended(None, f"took over {limit_s:.0f} s", now - self.since)

    def _ended(self, code: int | None, problem: str, seconds: float) -> Result:
        number, *self.left = self.left
        return Result(number, kind_of(self.seed, number), code, problem, seconds)


def limit_of(case: Case) -> float:
    """Without a command, `live` runs."""
    command = case.arguments[0] if case.arguments else ""
    return LIVE_LIMIT_S if command == "live" or command[:1] in ("", "-") else LIMIT_S


def run_all(seed: int, numbers: list[int], jobs: int) -> Iterator[Result]:
    """Run the cases in `jobs` processes; results come as they end."""
    with tempfile.TemporaryDirectory(prefix="decodescope-fuzz-") as name:
        root = Path(name)
        workers = [_Worker(seed, numbers[one::jobs], root) for one in range(jobs)]
        while workers:
            wait([worker.connection for worker in workers], timeout=0.5)
            now = time.monotonic()
            for worker in workers:
                yield from worker.results(now)
            workers = [
                worker if worker.process.is_alive() else _Worker(seed, worker.left, root)
                for worker in workers
                if worker.left
            ]


def run_once(case: Case, root: Path) -> str:
    """Run one case in a forked process; returns what is wrong with how it ended."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_run_case, args=(case, root, theirs), daemon=True)
    process.start()
    theirs.close()
    limit_s = limit_of(case)
    try:
        return str(ours.recv()) if ours.poll(limit_s) else f"took over {limit_s:.0f} s"
    except EOFError:
        process.join()
        return f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _run_case(case: Case, root: Path, results: Connection) -> None:
    results.send(Runner(root).problem(case)[1])


def _run_cases(seed: int, numbers: list[int], root: Path, results: Connection) -> None:
    runner = Runner(root)
    for number in numbers:
        case = case_of(seed, number)
        began = time.monotonic()
        code, problem = runner.problem(case)
        results.send((code, problem, time.monotonic() - began))
