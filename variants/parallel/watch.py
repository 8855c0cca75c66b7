"""How ranks learn of each other's end: through the store that they met at.

Each rank counts in the store, and looks at the counts of the others. The first rank to fail writes
its reason there, and is the only one that reports an error. So a failure that all ranks share is
one line, and a rank that waits for another inside a library ends too.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec
from msgspec import Struct
from torch.distributed import Store  # type: ignore[attr-defined]

from decodescope.analyzer.errors import InternalError, MissingRequirement, known_error
from decodescope.variants.machine.child_process import exit_now
from decodescope.variants.parallel.place import ERROR_PREFIX, RankProcess, this_process
from decodescope.variants.parallel.ranks import Ranks

# A rank that has not counted for so long has stopped. Libraries keep the interpreter's lock for
# seconds while they compile.
SILENT_S = 18.0
_LOOK_S = 0.5
# A rank that ends for another waits for its launcher to end it: it would end the one that reports
# for that, and taking torch apart takes this one seconds.
_GRACE_S = 10.0
_YIELD_S = 2.0
_FAILURE, _GONE = "failure", "left"


class RankFailure(Struct, frozen=True):
    """The first failure of a group."""

    rank: int
    message: str
    exit_code: int


class Watch:
    """One rank's watch over the others, by a `store` of its own: a connection waits for one answer
    at a time. Rank 0 holds the store if `opens_store`, else the launcher does."""

    def __init__(self, store: Store, ranks: Ranks, silent_s: float, opens_store: bool) -> None:
        self._store = store
        self._ranks = ranks
        self._silent_s = silent_s
        self._opens_store = opens_store
        self._grace_s = 0.0 if opens_store else _GRACE_S
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=target, name="ranks", daemon=True)
            for target in (self._run, self._guard)
        ]
        self._answered_s = 0.0
        self._processes: Sequence[RankProcess] = ()

    def start(self, processes: Sequence[RankProcess]) -> None:
        """Watch the `processes` of all ranks, in their order, which have met."""
        self._processes = processes
        self._store.set(_alive(self._ranks.rank), "0")
        self._answered_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """This rank has done its part, and counts no more. A store ends with rank 0, so that leaves
        last."""
        self._stopped.set()
        self._threads[0].join()
        with suppress(RuntimeError):
            self._store.set(_alive(self._ranks.rank), _GONE)
            if self._opens_store and not self._ranks.rank:
                self._wait_for_others()

    def end_for(self, error: Exception) -> None:
        """End this rank for an `error`, unless it is rank 0 and has to report it.

        An error of the communication itself is waited with: another rank has ended then, or does
        not answer, and that is the reason to report.
        """
        known = known_error(error)
        if isinstance(known, InternalError) and _is_communication(error):
            self._wait_for_reason(self._silent_s + 4 * _LOOK_S)
        elif self._ranks.rank:
            # Of an error that all have, rank 0 reports.
            self._wait_for_reason(_YIELD_S)
        message = str(known)
        self._claim(RankFailure(self._ranks.rank, message, known.exit_code))
        if self._ranks.rank:
            if isinstance(known, InternalError):
                traceback.print_exception(error)
            self._report(f"rank {self._ranks.rank}: {message}", known.exit_code)
        self._keep_store()

    def _run(self) -> None:
        seen: dict[int, tuple[bytes, float]] = {}
        count = 0
        try:
            while not self._stopped.wait(_LOOK_S):
                count += 1
                self._store.set(_alive(self._ranks.rank), str(count))
                if self._store.check([_FAILURE]):
                    self._follow()
                for rank in range(self._ranks.size):
                    if self._is_silent(rank, seen):
                        self._end_silent(rank)
                self._answered_s = time.monotonic()
        except RuntimeError:
            if not self._stopped.is_set():
                self._end_without_store("has ended")

    def _guard(self) -> None:
        """A store on a stopped process, or out of reach, never answers."""
        if self._opens_store and not self._ranks.rank:
            return
        while not self._stopped.wait(_LOOK_S):
            if time.monotonic() - self._answered_s > self._silent_s + _LOOK_S:
                self._end_without_store(f"has not answered for {self._silent_s:.0f} s")

    def _is_silent(self, rank: int, seen: dict[int, tuple[bytes, float]]) -> bool:
        if rank == self._ranks.rank or not self._store.check([_alive(rank)]):
            return False
        value, now_s = self._store.get(_alive(rank)), time.monotonic()
        known, since_s = seen.get(rank, (b"", now_s))
        if value != known:
            seen[rank] = value, now_s
            return False
        return value != _GONE.encode() and now_s - since_s > self._silent_s

    def _end_silent(self, rank: int) -> None:
        message = (
            f"rank {rank} ({self._processes[rank].name}) has not answered for {self._silent_s:.0f} "
            "s: it was stopped, or its machine is out of reach; start the run again"
        )
        self._claim(RankFailure(self._ranks.rank, message, MissingRequirement.exit_code))
        self._kill(rank)
        self._report(message, MissingRequirement.exit_code)

    def _end_without_store(self, fate: str) -> None:
        """End this rank for the end of the process that holds the store. The first of the ranks on
        a host that are left reports it."""
        left = list(enumerate(self._processes))[self._opens_store :]
        beside = [rank for rank, process in left if process.host == this_process().host]
        if self._opens_store:
            self._kill(0)
            holder = f"rank 0 ({self._processes[0].name})"
        else:
            holder = "the launcher of the ranks"
        if self._ranks.rank == beside[0]:
            self._report(f"{holder} {fate}; start the run again", MissingRequirement.exit_code)
        exit_now(MissingRequirement.exit_code)

    def _kill(self, rank: int) -> None:
        """A stopped process keeps the signal that asks it to end for later."""
        process = self._processes[rank]
        if process.is_sibling(this_process()):
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)

    def _wait_for_reason(self, patience_s: float) -> None:
        deadline_s = time.monotonic() + patience_s
        with suppress(RuntimeError):
            while time.monotonic() < deadline_s:
                if self._store.check([_FAILURE]):
                    return
                time.sleep(_LOOK_S / 10)

    def _wait_for_others(self) -> None:
        deadline_s = time.monotonic() + self._silent_s
        others = [_alive(rank) for rank in range(1, self._ranks.size)]
        while time.monotonic() < deadline_s:
            if all(value == _GONE.encode() for value in self._store.multi_get(others)):
                return
            time.sleep(_LOOK_S / 10)

    def _claim(self, failure: RankFailure) -> None:
        """Become the rank that reports; if another one is, end this one quietly."""
        self._stopped.set()
        mine = msgspec.json.encode(failure).decode()
        with suppress(RuntimeError):  # without a store, whoever fails reports
            if self._store.compare_set(_FAILURE, "", mine) != mine.encode():
                self._follow()

    def _follow(self) -> NoReturn:
        """End for the failure that another rank reports."""
        failure = msgspec.json.decode(self._store.get(_FAILURE), type=RankFailure)
        if failure.rank == self._ranks.rank:
            # Another thread reports it.
            threading.Event().wait()
        self._stopped.set()
        time.sleep(self._grace_s)
        exit_now(failure.exit_code)

    def _keep_store(self) -> None:
        """The store ends with rank 0 if that opened it, and the others have to read why."""
        if self._opens_store and not self._ranks.rank:
            time.sleep(3 * _LOOK_S)

    def _report(self, message: str, exit_code: int) -> NoReturn:
        sys.stderr.write(f"{ERROR_PREFIX}{' '.join(message.split())}\n")
        sys.stderr.flush()
        self._keep_store()
        exit_now(exit_code)


def _alive(rank: int) -> str:
    return f"alive/{rank}"


def _is_communication(error: Exception) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return any(word in text for word in ("gloo", "nccl", "dist", "store"))
