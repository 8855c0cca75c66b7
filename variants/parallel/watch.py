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

import msgspec
from msgspec import Struct
from torch.distributed import Store

from decodescope.analyzer.errors import InternalError, MissingRequirement, known_error
from decodescope.variants.machine.child_process import exit_now
from decodescope.variants.parallel.place import ERROR_PREFIX, RankProcess, this_process
from decodescope.variants.parallel.ranks import Ranks

# A rank that has not counted for so long has stopped. Libraries keep the interpreter's lock for
# seconds while they compile.
SILENT_S = 18.0
_LOOK_S = 0.5
# A rank that ends for another leaves first only where no launcher ends it: the launcher would end
# the one that reports for that, and taking torch apart takes it seconds.
_GRACE_S = 10.0
_FAILURE, _GONE = "failure", b"left"


class RankFailure(Struct, frozen=True):
    """The first failure of a group."""

    rank: int
    message: str
    exit_code: int


class Watch:
    """One rank's watch over the others, by a `store` of its own: a connection waits for one answer
    at a time."""

    def __init__(self, store: Store, ranks: Ranks, silent_s: float = SILENT_S) -> None:
        self._store = store
        self._ranks = ranks
        self._silent_s = silent_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ranks", daemon=True)
        self._processes: Sequence[RankProcess] = ()

    def start(self, processes: Sequence[RankProcess]) -> None:
        """Watch the `processes` of all ranks, in their order, which have met."""
        self._processes = processes
        self._store.set(_alive(self._ranks.rank), "0")
        self._thread.start()

    def leave(self) -> None:
        """This rank has done its part, and counts no more."""
        self._stopped.set()
        if self._processes:
            self._thread.join()
        with suppress(RuntimeError):
            self._store.set(_alive(self._ranks.rank), _GONE)

    def end_for(self, error: Exception) -> None:
        """End this rank for an `error`, unless it is rank 0 and has to report it.

        An error of the communication itself is waited with: another rank has ended then, or does
        not answer, and that is the reason to report.
        """
        known = known_error(error)
        if isinstance(known, InternalError) and _is_communication(error):
            self._wait_for_reason()
        message = str(known)
        self._claim(RankFailure(self._ranks.rank, message, known.exit_code))
        if self._ranks.rank:
            if isinstance(known, InternalError):
                traceback.print_exception(error)
            self._report(f"rank {self._ranks.rank}: {message}", known.exit_code)

    def _run(self) -> None:
        seen: dict[int, tuple[bytes, float]] = {}
        count = 0
        try:
            while not self._stopped.wait(_LOOK_S):
                count += 1
                self._store.set(_alive(self._ranks.rank), str(count))
                if self._store.check([_FAILURE]):
                    time.sleep(_GRACE_S)
                    exit_now(self._failure().exit_code)
                for rank in range(self._ranks.size):
                    if self._is_silent(rank, seen):
                        self._end_silent(rank)
        except RuntimeError as error:
            if not self._stopped.is_set():
                self._end_without_store(error)

    def _is_silent(self, rank: int, seen: dict[int, tuple[bytes, float]]) -> bool:
        if rank == self._ranks.rank or not self._store.check([_alive(rank)]):
            return False
        value, now_s = self._store.get(_alive(rank)), time.monotonic()
        known, since_s = seen.get(rank, (b"", now_s))
        if value != known:
            seen[rank] = value, now_s
            return False
        return value != _GONE and now_s - since_s > self._silent_s

    def _end_silent(self, rank: int) -> None:
        process = self._processes[rank]
        message = (
            f"rank {rank} ({process.name}) has not answered for {self._silent_s:.0f} s: it was "
            "stopped, or its machine is out of reach; start the run again"
        )
        code = MissingRequirement.exit_code
        self._claim(RankFailure(self._ranks.rank, message, code))
        if process.is_sibling(this_process()):
            # A stopped process keeps the signal that asks it to end for later.
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        self._report(message, code)

    def _end_without_store(self, error: RuntimeError) -> None:
        """Only ranks on other hosts than rank 0 have nobody beside them who reports it."""
        if not self._ranks.rank or self._processes[0].host != this_process().host:
            self._report(
                f"rank {self._ranks.rank}: the store of the group does not answer, so the process "
                f"that started it has ended ({str(error).splitlines()[0]}); start the run again",
                MissingRequirement.exit_code,
            )
        exit_now(MissingRequirement.exit_code)

    def _wait_for_reason(self) -> None:
        deadline_s = time.monotonic() + self._silent_s + _GRACE_S
        with suppress(RuntimeError):
            while time.monotonic() < deadline_s:
                if self._store.check([_FAILURE]):
                    return
                time.sleep(_LOOK_S)

    def _claim(self, failure: RankFailure) -> None:
        """Become the rank that reports; if another one is, end this one quietly."""
        mine = msgspec.json.encode(failure).decode()
        with suppress(RuntimeError):  # without a store, whoever fails reports
            if self._store.compare_set(_FAILURE, "", mine) != mine.encode():
                time.sleep(_GRACE_S)
                exit_now(self._failure().exit_code)

    def _failure(self) -> RankFailure:
        return msgspec.json.decode(self._store.get(_FAILURE), type=RankFailure)

    def _report(self, message: str, exit_code: int) -> None:
        sys.stderr.write(f"{ERROR_PREFIX}{' '.join(message.split())}\n")
        exit_now(exit_code)


def _alive(rank: int) -> str:
    return f"alive/{rank}"


def _is_communication(error: Exception) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return any(word in text for word in ("gloo", "nccl", "dist", "store"))
