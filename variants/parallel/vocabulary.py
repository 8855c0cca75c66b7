"""The vocabulary over ranks: each makes the logits of some tokens, and all choose the same one."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from decodescope.variants.parallel.cuts import Cut, split_of
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.parallel.split import HEAD_WEIGHT


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`size` tokens. Each of the `ranks` has the logits of a `share` of them, the last one of those
    that are left."""

    ranks: Ranks = ALONE
    size: int = 0

    @property
    def share(self) -> int:
        return -(-self.size // self.ranks.size)

    @property
    def first(self) -> int:
        """The first token of this rank."""
        return self.ranks.rank * self.share

    def gather(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        """Write `whole` to `out`."""
        out.copy_(self.whole(logits))

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits [batch, size] of all ranks, from this rank's [batch, tokens]."""
        if self.ranks.alone:
            return logits
        padded = torch.nn.functional.pad(logits, (0, self.share - logits.shape[1])).contiguous()
        return self._gathered(padded).transpose(0, 1).flatten(1)[:, : self.size]

    def likeliest(self, logits: torch.Tensor) -> torch.Tensor:
        """The token of the largest logit of all ranks, int64 [batch], the first of equal ones.

        Only each rank's largest logit and its token are exchanged.
        """
        if self.ranks.alone:
            return logits.argmax(-1)
        value, token = logits.max(-1)
        # float64 has both exactly.
        mine = torch.stack((value.double(), token.double() + self.first))
        values, tokens = self._gathered(mine).unbind(1)
        return tokens.gather(0, values.argmax(0, keepdim=True))[0].long()

    def _gathered(self, mine: torch.Tensor) -> torch.Tensor:
        """[ranks, ...] of a tensor that has one shape on every rank."""
        every = [torch.empty_like(mine) for _ in range(self.ranks.size)]
        dist.all_gather(every, mine)
        return torch.stack(every)


def vocabulary_of(model: Any) -> Vocabulary:
    """That of a model, sharded or not."""
    split = split_of(model)
    cut = split.cuts.get(HEAD_WEIGHT)
    return Vocabulary(split.ranks, cut.blocks[0].units) if isinstance(cut, Cut) else Vocabulary()
