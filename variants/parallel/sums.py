"""The ways in which ranks add up their partial sums, and choose among their parts of the logits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.schema.report import Finding
from decodescope.kernels.host.exchange import Exchange
from decodescope.kernels.host.workspace import NO_KEY
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS
from decodescope.kernels.ops.all_reduce_qk_norm import norm_words
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shared_slots import (
    BUILDING_NS,
    WAITING_NS,
    NotShared,
    SharedExchange,
    meet,
    shared_exchanges,
)
from decodescope.variants.spec import AllReduce


@dataclass(frozen=True, slots=True)
class RankSums:
    """Shared by the ranks of one step.

    `partial` float32 [batch, hidden] holds a rank's part of a sum. It is added up by our kernel,
    through the memory `sums`, as are the keys of the choice through `choices` and the squares of Q
    and K through `norms`; else, if they are None, by `collective`, and by torch.distributed what is
    no partial sum. `findings` say why.
    """

    ranks: Ranks
    partial: torch.Tensor
    collective: AllReduce = "torch"
    sums: SharedExchange | None = None
    choices: SharedExchange | None = None
    norms: SharedExchange | None = None
    findings: tuple[Finding, ...] = ()

    def add_up(self, target: torch.Tensor, adds: bool) -> None:
        """Add the sum of all ranks' `partial` to `target`, or write it there."""
        (target.add_ if adds else target.copy_)(self.total())

    def total(self) -> torch.Tensor:
        """The sum of all ranks' `partial` by PyTorch, which may be in its place."""
        if self.collective == "torch":
            dist.all_reduce(self.partial)
            return self.partial
        operators = torch.ops.symm_mem
        reduce = operators.two_shot_all_reduce_
        if self.collective == "one_shot":
            reduce = operators.one_shot_all_reduce
        total: torch.Tensor = reduce(self.partial, "sum", _group().group_name)
        return total

    @contextmanager
    def built_together(self) -> Iterator[None]:
        """The first launches of a step, inside it: kernels wait until all ranks have compiled."""
        for exchange in self._exchanges:
            exchange.patience_ns.fill_(BUILDING_NS)
        yield
        meet(self.ranks)
        for exchange in self._exchanges:
            exchange.patience_ns.fill_(WAITING_NS)

    def require_all(self) -> None:
        """Raise `MissingRequirement` if a kernel waited for a rank in vain. Waits for nothing."""
        for exchange in self._exchanges:
            if missing := int(exchange.missing):
                raise MissingRequirement(
                    f"rank {missing - 1} sent nothing to rank {self.ranks.rank} for "
                    f"{WAITING_NS / 1e9:.0f} s: it has stopped, or failed; start all ranks again"
                )

    @property
    def _exchanges(self) -> tuple[Exchange, ...]:
        shared = (each for each in (self.sums, self.choices, self.norms) if each is not None)
        return tuple(each.exchange for each in shared)


def rank_sums(
    wanted: AllReduce | None,
    batch: int,
    hidden: int,
    device: torch.device,
    ranks: Ranks,
    norms: bool = False,
) -> RankSums:
    """Memory for the sums of one step, in the way that is `wanted` (`VariantSpec.all_reduce`), also
    for `norms` of Q and K over all ranks' heads. All ranks call it together.

    Raises:
        MissingRequirement: PyTorch's symmetric memory cannot be used here.
    """
    shape = (batch, hidden)
    if wanted in ("one_shot", "two_shot"):
        return RankSums(ranks, _symmetric(shape, device), wanted)
    partial = torch.zeros(shape, dtype=torch.float32, device=device)
    if wanted is not None:
        return RankSums(ranks, partial)
    try:
        shared, choices = shared_exchanges((batch * hidden, CHOICE_WORDS), device, ranks)
        squares = shared_exchanges((norm_words(batch),), device, ranks)[0] if norms else None
        return RankSums(ranks, partial, "torch", shared, choices, squares)
    except NotShared as error:
        message = f"{error}: torch.distributed adds up the sums of the ranks, not our kernel"
        found = (Finding("no_peer_access", message),) if device.type == "cuda" else ()
        return RankSums(ranks, partial, findings=found)


def _symmetric(shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    from torch.distributed import _symmetric_memory as symmetric_memory

    # At these sizes NVLink's multicast is no faster, and others on the host may need it.
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    try:
        memory = symmetric_memory.empty(*shape, dtype=torch.float32, device=device)
        symmetric_memory.rendezvous(memory, _group())
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise MissingRequirement(
            f"PyTorch's symmetric memory cannot be used here ({reason}); choose another all-reduce"
        ) from error
    return memory.zero_()


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def choose_by_keys(keys: torch.Tensor, position: torch.Tensor, tokens: torch.Tensor) -> None:
    """As the kernel of `AllReduceChoice`, by torch.distributed."""
    dist.all_reduce(keys, dist.ReduceOp.MAX)
    chosen = 0x7FFFFFFF - (keys[: len(tokens), None] & 0x7FFFFFFF)
    position.add_(1)
    tokens.index_copy_(1, position.long(), chosen)
    keys.fill_(NO_KEY)
