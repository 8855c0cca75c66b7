"""Memory that sampling kernels share between launches, and how programs find the last of them.

`state` holds the slots below for every sequence. The last kernel resets the memory: histograms and
counters zero, `BEST` at `NO_KEY`, `LARGEST` and `TOTAL` zero, so that a CUDA graph can be replayed.
The other slots are written before they are read.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.host.workspace import NO_KEY

# A logit's key has 32 bits; a histogram counts one half of them.
HALF = tl.constexpr(16)
BINS = tl.constexpr(1 << 16)
LOW = tl.constexpr((1 << 16) - 1)
# All of the lower half's bins may be in use, so sums of groups of them follow the bins. The upper
# half has no groups: most logits would be in few of them, whose atomic additions would serialise.
GROUP = tl.constexpr(256)
LOWER_BINS = tl.constexpr((1 << 16) + 256)

BEST = tl.constexpr(0)  # the largest score so far and its token, packed by `choice_keys`
LARGEST = tl.constexpr(1)  # key of the largest logit
TOTAL = tl.constexpr(2)  # probability mass that top-k left
BIN = tl.constexpr(3)  # upper half of the key at the border
ABOVE = tl.constexpr(4)  # count or mass of the bins above it
TARGET = tl.constexpr(5)  # count or mass to be reached
BORDER = tl.constexpr(6)  # the smallest key that is kept,
FIRST_TIED = tl.constexpr(7)  # and with this key, the lowest token
SLOTS = tl.constexpr(8)


@dataclass(frozen=True, slots=True)
class SamplingWorkspace:
    """Memory of `sample` for up to `batch` sequences, 1 MiB each.

    upper int64 [batch, 65536], lower int64 [batch, 65536 + 256]: histograms over a half of the
    keys, the lower one with its groups; state int64 [batch, slots]; counters int32 [batch + 1], the
    last one over sequences.
    """

    upper: torch.Tensor
    lower: torch.Tensor
    state: torch.Tensor
    counters: torch.Tensor

    @property
    def batch(self) -> int:
        return int(self.state.shape[0])

    def check(self, batch: int, device: torch.device) -> None:
        """Raise `ValueError` unless it has room for `batch` sequences on `device`."""
        if self.batch < batch or self.state.device != device:
            raise ValueError(
                f"sampling workspace for {self.batch} sequences on {self.state.device}: "
                f"needs {batch} on {device}"
            )


def new_sampling_workspace(batch: int, device: torch.device | str) -> SamplingWorkspace:
    state = torch.zeros(batch, SLOTS.value, dtype=torch.int64, device=device)
    state[:, BEST.value] = NO_KEY
    return SamplingWorkspace(
        torch.zeros(batch, BINS.value, dtype=torch.int64, device=device),
        torch.zeros(batch, LOWER_BINS.value, dtype=torch.int64, device=device),
        state,
        torch.zeros(batch + 1, dtype=torch.int32, device=device),
    )


@triton.jit
def arrived_last(counter_ptr, programs):
    """Whether this program is the last of `programs` to arrive. If so, the counter is reset, and
    what the others wrote before they arrived is visible."""
    tl.debug_barrier()
    last = tl.atomic_add(counter_ptr, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(counter_ptr, 0)
    return last


@triton.jit
def add_to_lower(lower_ptr, keys, weights, mask):
    """Add to the bins of the lower halves of `keys`, and to their groups."""
    half = keys & LOW
    tl.atomic_add(lower_ptr + half, weights, mask=mask, sem="relaxed")
    tl.atomic_add(lower_ptr + BINS + (half >> 8), weights, mask=mask, sem="relaxed")


@triton.jit
def clear_lower(lower_ptr, keys, mask):
    """Zero the bins and groups that `add_to_lower` filled."""
    half = keys & LOW
    tl.store(lower_ptr + half, half * 0, mask=mask)
    tl.store(lower_ptr + BINS + (half >> 8), half * 0, mask=mask)
