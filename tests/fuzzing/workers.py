"""Forked workers that run cases, and the watch over them: no case may take longer than a limit."""

import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from tests.fuzzing.case import Case
from tests.fuzzing.kinds import case_of, kind_of
from tests.fuzzing.process import Runner

LIMIT_S = 10.0
# A live run starts a process that imports torch and transformers.
LIVE_LIMIT_S = 60.0
# What a library keeps of each case would otherwise add up.
_CASES_A_WORKER = 3000
_LOOK_S = 0.5
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Result:
    """How case `number` ended; `problem` is empty if all was well, `code` None if it was killed."""

    number: int
    kind: str
    code: int | None
    problem: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Queue:
    """The cases that all workers take from, one at a time; `taken` of them are gone."""

    seed: int
    numbers: Sequence[int]
    taken: "Synchronized[int]"

    def take(self, at: Any) -> int | None:
        """The place of the next number, also written to `at`; None after the last one."""
        with self.taken.get_lock():
            if self.is_empty:
                return None
            at.value = place = self.taken.value
            self.taken.value += 1
            return place

    @property
    def is_empty(self) -> bool:
        return self.taken.value == len(self.numbers)


class _Worker:
    """A forked process that runs cases of a queue until none is left or it has run enough."""

    def __init__(self, queue: _Queue, root: Path) -> None:
        self.is_over = False
        self._queue = queue
        # The places of the case that runs, as the process writes it, and of the last that ended.
        self._at: Any = _FORK.Value("q", -1, lock=False)
        self._ended = -1
        self.connection, theirs = _FORK.Pipe(duplex=False)
        self._process: BaseProcess = _FORK.Process(
            target=_run_cases, args=(queue, self._at, root, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self._since = time.monotonic()

    def results(self) -> Iterator[tuple[int, Result]]:
        """The place and the result that have arrived; at the end of the process, also what it was
        at."""
        try:
            place, *ended = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            yield from self._end(f"the process ended with {self._process.exitcode}")
        else:
            self._since, self._ended = time.monotonic(), place
            yield place, self._result(place, *ended)

    def late_result(self, now: float) -> Iterator[tuple[int, Result]]:
        """That of a case which takes longer than its limit, whose process is killed; or the end of
        a process whose pipe a process of its own keeps open."""
        if self.connection.poll():
            return
        if not self._process.is_alive():
            yield from self._end(f"the process ended with {self._process.exitcode}")
            return
        seconds = now - self._since
        if seconds < LIMIT_S or self._at.value == self._ended:
            return
        number = self._queue.numbers[self._at.value]
        limit_s = limit_of(case_of(self._queue.seed, number))
        if seconds > limit_s:
            self.kill()
            yield from self._end(f"took over {limit_s:.0f} s", seconds)

    def kill(self) -> None:
        # It may be about to take a case: others would wait for the lock that it has.
        with self._queue.taken.get_lock():
            self._process.kill()
        self._process.join()

    def _end(self, problem: str, seconds: float = 0.0) -> Iterator[tuple[int, Result]]:
        """What has arrived meanwhile, and what the process was at."""
        self.is_over = True
        while self.connection.poll():
            try:
                self._ended, *ended = self.connection.recv()
            except (EOFError, OSError):
                break
            yield self._ended, self._result(self._ended, *ended)
        if self._at.value != self._ended:
            yield self._at.value, self._result(self._at.value, None, problem, seconds)

    def _result(self, place: int, code: int | None, problem: str, seconds: float) -> Result:
        number = self._queue.numbers[place]
        return Result(number, kind_of(self._queue.seed, number), code, problem, seconds)


def limit_of(case: Case) -> float:
    """Without a command, `live` runs."""
    command = case.arguments[0] if case.arguments else ""
    return LIVE_LIMIT_S if command == "live" or command[:1] in ("", "-") else LIMIT_S


def run_all(seed: int, numbers: Sequence[int], jobs: int) -> Iterator[Result]:
    """Run the cases in `jobs` processes; results come in the order of `numbers`."""
    queue = _Queue(seed, numbers, _FORK.Value("q", 0))
    with tempfile.TemporaryDirectory(prefix="decodescope-fuzz-") as name:
        early: dict[int, Result] = {}
        arriving = _results(queue, Path(name), jobs)
        for place in range(len(numbers)):
            while place not in early:
                early.update([next(arriving)])
            yield early.pop(place)


def _results(queue: _Queue, root: Path, jobs: int) -> Iterator[tuple[int, Result]]:
    """Places and results as they arrive; a worker that ends is replaced while cases are left."""
    selector, look_at = DefaultSelector(), 0.0
    workers: list[_Worker] = []
    try:
        while workers or not queue.is_empty:
            while len(workers) < jobs and not queue.is_empty:
                workers.append(_Worker(queue, root))
                selector.register(workers[-1].connection, EVENT_READ, workers[-1])
            for key, _ in selector.select(_LOOK_S):
                yield from key.data.results()
            if (now := time.monotonic()) > look_at:
                look_at = now + _LOOK_S
                for worker in workers:
                    yield from worker.late_result(now)
            for worker in [worker for worker in workers if worker.is_over]:
                workers.remove(worker)
                selector.unregister(worker.connection)
                worker.connection.close()
    finally:
        selector.close()
        for worker in workers:
            worker.kill()


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


def _run_cases(queue: _Queue, at: Any, root: Path, results: Connection) -> None:
    parent = os.getppid()
    # Each collection would visit the million objects of libraries.
    gc.freeze()
    runner = Runner(root / str(os.getpid()))
    for _ in range(_CASES_A_WORKER):
        place = queue.take(at)
        # A parent that was killed has not ended its workers.
        if place is None or os.getppid() != parent:
            break
        case = case_of(queue.seed, queue.numbers[place])
        began = time.monotonic()
        code, problem = runner.problem(case)
        results.send((place, code, problem, time.monotonic() - began))
