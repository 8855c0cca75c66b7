"""Runs a function in the ranks of a process group: processes of this machine, over gloo."""

import gc
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import sleep
from typing import Any

import torch
import torch.distributed as dist

from decodescope.variants.parallel.ranks import Ranks
from tests.helpers.rank_groups import forks

_PATIENCE_S = 120


def on_ranks(size: int, folder: Path, work: Callable[..., Any], *operands: Any) -> list[Any]:
    """The results of `work(ranks, *operands)`, a function of a module, of every rank.

    Raises:
        AssertionError: a rank failed, with its traceback, or gave nothing in time.
    """
    context = forks()
    store = folder / f"store-of-{size}"
    store.unlink(missing_ok=True)
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        context.Process(target=_rank, args=(Ranks(rank, size), store, pipe[1], work, operands))
        for rank, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        results: dict[int, Any] = {}
        waiting = {receiver: rank for rank, (receiver, _) in enumerate(pipes)}
        while waiting:
            ready = wait(waiting, _PATIENCE_S)
            assert ready, "a rank gave nothing in time"
            for receiver in ready:
                failure, results[waiting.pop(receiver)] = receiver.recv()
                assert failure is None, failure
        return [results[rank] for rank in range(size)]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _rank(
    ranks: Ranks, store: Path, sender: Connection, work: Callable[..., Any], operands: Any
) -> None:
    gc.freeze()
    torch.set_num_threads(1)
    place = {"rank": ranks.rank, "world_size": ranks.size}
    dist.init_process_group("gloo", init_method=f"file://{store}", **place)
    try:
        sender.send((None, work(ranks, *operands)))
    except BaseException:
        sender.send((traceback.format_exc(), None))
    # No rank leaves while another one needs it; all are ended together.
    sender.close()
    sleep(_PATIENCE_S)
