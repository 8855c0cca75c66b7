"""Ranks on CPUs as forks of the test's process, which has imported torch already."""

import multiprocessing
import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

from decodescope.variants.parallel.ranks import Ranks

_TIMEOUT_S = 120


def over_ranks(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """The results of `work` on each of `size` ranks, which are gloo's default group."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Python warns of forks of processes with threads; these hold no lock that a fork needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        ends, processes = [], []
        for rank in range(size):
            own, theirs = context.Pipe(duplex=False)
            arguments = (Ranks(rank, size), f"{folder}/store", work, theirs)
            processes.append(context.Process(target=_run, args=arguments, daemon=True))
            processes[-1].start()
            theirs.close()
            ends.append(own)
        try:
            answers = [_answer(end) for end in ends]
        finally:
            for process in processes:
                process.kill()
                process.join()
    for rank, (_, failure) in enumerate(answers):
        assert failure is None, f"rank {rank}: {failure}"
    return [result for result, _ in answers]


def _answer(end: Connection) -> Any:
    return pickle.loads(end.recv_bytes()) if end.poll(_TIMEOUT_S) else (None, "no answer")


def _run(ranks: Ranks, store: str, work: Callable[[Ranks], Any], answer: Connection) -> None:
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, ranks.size),
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=timedelta(seconds=_TIMEOUT_S),
        )
        told = work(ranks), None
    except BaseException:
        told = None, traceback.format_exc()
    # A Connection would pass tensors on as memory of a process that has ended by then.
    answer.send_bytes(pickle.dumps(told))
