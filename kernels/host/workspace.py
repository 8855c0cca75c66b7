"""Scratch memory of kernels whose programs share an output.

Such a program writes its partial result, then increments a counter. The last one to arrive, or one
that waits for all (in attention), adds the partial results in the order of their splits, so that
the same inputs give the same bits, and resets the counter for the next launch. Kernels of one
stream can share a workspace, because each uses it only after the previous kernel has completed.
"""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.tile import Tile, padded_tokens

MAX_BATCH = 64
NO_KEY = -(2**63)


@dataclass(frozen=True, slots=True)
class Workspace:
    """`partials` float32 [n] may hold anything between launches. Then `counters` int32 [m] are
    zero, and `keys` int64 [MAX_BATCH], the largest (value, index) so far as one integer, `NO_KEY`.
    """

    partials: torch.Tensor
    counters: torch.Tensor
    keys: torch.Tensor

    def check(self, partials: int, counters: int, device: torch.device) -> None:
        """Raise `ValueError` unless it holds that many floats and counters on this device."""
        if self.partials.device != device:
            raise ValueError(f"workspace on {self.partials.device}: must be on {device}")
        if self.partials.numel() < partials or self.counters.numel() < counters:
            raise ValueError(
                f"workspace of {self.partials.numel()} floats and {self.counters.numel()} "
                f"counters: this launch needs {partials} and {counters}"
            )


def split_sizes(blocks: int, tile: Tile, batch: int) -> tuple[int, int]:
    """Floats and counters that the splits of so many blocks of `tile.rows` rows need: for each
    split the sums of all rows and a batch's tokens, padded; none without splits."""
    if tile.splits == 1:
        return 0, 0
    tokens = 1 if batch == 1 else padded_tokens(batch)
    return tile.splits * blocks * tile.rows * tokens, blocks


def new_workspace(partials: int, counters: int, device: torch.device | str) -> Workspace:
    return Workspace(
        torch.empty(partials, dtype=torch.float32, device=device),
        torch.zeros(counters, dtype=torch.int32, device=device),
        torch.full((MAX_BATCH,), NO_KEY, dtype=torch.int64, device=device),
    )
