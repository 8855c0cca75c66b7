"""The protocol every variant's decode step keeps, whatever runs inside it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from decodescope.variants.steps.compiled.inductor_origins import CallSite


class DecodeStep(Protocol):
    """One built variant, ready to decode.

    `prefill` fills the KV cache from the prompt and returns the first new ids; each `step` feeds
    the last ids, appends one position to the cache and returns the next ids. Ids are int64 device
    tensors of shape [batch], which may be views of one buffer: a returned tensor stays unchanged
    until the next `prefill`, a `reset` to an earlier position than its own, or a `forced_step` that
    is given other ids in its place. `step` must not synchronise with the device: its caller paces
    and times it with events.
    No method changes the model's weights: other variants are scored with them.

    `position` is the KV-cache length before the next step. `weight_bytes_read` are the bytes of
    weights one step must read (one embedding row a sequence, not the table), `kv_bytes_read(p)`
    the bytes of K and V that a step at cache length p must read.
    """

    position: int
    weight_bytes_read: int

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Fill the cache from prompt `ids` [batch, context]; returns the first new ids [batch]."""
        ...

    def step(self) -> torch.Tensor:
        """Decode one token for every sequence; returns the next ids [batch]."""
        ...

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        """Decode the given `ids` int64 [batch] exactly as `step` decodes the last ones.

        Appends one position; the ids of a `step` right after it are those that these logits give.
        Returns the logits [batch, vocabulary] in the model's dtype, a tensor of the caller's own.
        """
        ...

    def reset(self, position: int) -> None:
        """Rewind so that the next step decodes at `position` again (prompt length or later)."""
        ...

    def kv_bytes_read(self, position: int) -> int:
        """Bytes of K and V that a step at cache length `position` must read."""
        ...

    def annotate_layers(self, enabled: bool) -> None:
        """Put NVTX/profiler ranges on layers, attention, MLP, norms and head, or remove them.

        Steps are timed with them off. A captured graph has none inside: see `ungraphed`.
        """
        ...

    def ungraphed(self) -> "UngraphedStep | None":
        """The same step without its CUDA graph; None of a step that replays none.

        It launches the kernels of `step` under the same names in the same order on each stream, and
        opens ranges once `annotate_layers(True)` was called. Whatever it compiles, it compiles at
        its first step. It may share this step's KV cache: this step must be given a prompt again
        before it goes on. May raise anything; replays then go without paths.
        """
        ...


@dataclass(frozen=True, slots=True)
class UngraphedStep:
    """A step that launches, one by one, the kernels that another step replays from its CUDA graph.

    `sites()`, called after it has run, tells where the kernel calls of generated code come from, in
    their order; empty where the step's own ranges say it all.
    """

    step: DecodeStep
    sites: Callable[[], tuple[CallSite, ...]]
