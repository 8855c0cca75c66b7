"""Work of ranks that are processes on the first GPU, or each on one of its own; imported by the
processes that are started."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.group import end_collectives
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.parallel.shared_slots import meet, shared_exchanges
from decodescope.variants.registry import build_variant
from tests.helpers.fused_steps import decoded, ids_of, load_family, prompt_of
from tests.helpers.kernel_inputs import random

_HIDDEN = 4097


def on_gpus(size: int, apart: bool, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of `work(ranks, *arguments)`, a function of this module, of each rank. Ranks that
    are `apart` have a GPU each, connected by NCCL, else all are on the first."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_run, (size, apart, folder, work, arguments), nprocs=size)
        return [torch.load(Path(folder) / f"{rank}", weights_only=False) for rank in range(size)]


def _run(
    rank: int,
    size: int,
    apart: bool,
    folder: str,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.cuda.set_device(rank if apart else 0)
    store, ranks = dist.FileStore(f"{folder}/store", size), Ranks(rank, size)
    backend = "cpu:gloo,cuda:nccl" if apart else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    torch.save(work(ranks, *arguments), Path(folder) / f"{rank}")
    meet(ranks)
    end_collectives()


def sums(ranks: Ranks, launches: int) -> tuple[int, int, bool]:
    """Wrong words of so many all-reduces; then, of one that the last rank leaves out, the number of
    the missing rank and whether all is NaN."""
    device = torch.device("cuda", torch.cuda.current_device())
    (shared,) = shared_exchanges((_HIDDEN,), device, ranks)
    own, wrong = shared.exchange, torch.zeros((), dtype=torch.int64, device=device)
    x = torch.empty(1, _HIDDEN, device=device)
    out = torch.empty_like(x)
    operation = AllReduceResidual(x, out, own, adds=False)
    for launch in range(launches):
        messages = [
            random(1, _HIDDEN, seed=100 * launch + rank, device="cuda")
            for rank in range(ranks.size)
        ]
        x.copy_(messages[ranks.rank])
        out.fill_(torch.nan)
        operation.launch(pdl=True)
        wrong += (out != sum(messages[1:], messages[0])).sum()
    found = int(wrong)
    meet(ranks)
    own.patience_ns.fill_(10**9)
    if ranks.rank < ranks.size - 1:
        operation.launch()
        torch.cuda.synchronize()
    return found, int(own.missing), bool(out.isnan().all())


def tokens(ranks: Ranks, family: str, spec: str, changes: dict[str, Any]) -> torch.Tensor:
    """The tokens of a step over the ranks, after a prompt and behind forced ones."""
    torch.manual_seed(0)
    loaded = load_family(family, "cuda", **changes)
    shard_model(loaded.model, ranks)
    loaded, workload = replace(loaded, ranks=ranks), DecodeWorkload(2, 6, 9, "fp32")
    step = build_variant(spec, loaded, workload, "cuda")
    first = step.prefill(prompt_of(loaded, workload))
    greedy = decoded(step, 4)
    if "graph" not in spec:
        # gloo cannot move the logits of a graph's step.
        step.forced_step(ids_of(loaded, 2, seed=7))
    ids = torch.cat((first[:, None], greedy, decoded(step, 3)), dim=1).cpu()
    # Raises if a kernel waited in vain.
    step.reset(step.position)
    return ids
