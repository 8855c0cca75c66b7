"""Ranks that meet as those of a launcher do: forks of one process that has imported torch, with the
environment of a rank each."""

import gc
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

# Imported once by the process from which all ranks of a test session are forked.
_PRELOADED = [
    "tests.helpers.triton_mode",
    "tests.helpers.fused_steps",
    "decodescope.variants.steps.compiled_step",
    "decodescope.variants.parallel.group",
    "decodescope.variants.measuring.run",
    "decodescope.variants.live.loop",
    "transformers.models.llama.modeling_llama",
]
PATIENCE_S = 40


@dataclass(frozen=True)
class StartedRank:
    process: BaseProcess
    error: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def ended(self) -> tuple[int | None, str]:
        """The exit code and stderr, once it has ended."""
        self.process.join(PATIENCE_S)
        return self.process.exitcode, self.error.read_text()


def forks() -> ForkServerContext:
    """Makes processes that are forks of one, which has imported what ranks need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def started_ranks(
    size: int, folder: Path, work: Callable[..., Any], *operands: Any, started: int | None = None
) -> Iterator[list[StartedRank]]:
    """Ranks of a group of `size` that run `work(*operands)`, a function of a module; only the first
    `started` of them, if that is given. All are killed at the end."""
    context = forks()
    address = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    try:
        for rank in range(size if started is None else started):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), **address}
            error = folder / f"rank{rank}.err"
            process = context.Process(target=_rank, args=(place, error, work, operands))
            process.start()
            ranks.append(StartedRank(process, error))
        yield ranks
    finally:
        for started_rank in ranks:
            started_rank.process.kill()
            started_rank.process.join()


def _rank(
    place: dict[str, str], error: Path, work: Callable[..., Any], operands: tuple[Any, ...]
) -> None:
    gc.freeze()
    os.environ.update(place)
    file = os.open(error, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    work(*operands)
