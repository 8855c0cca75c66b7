"""The ids a decode step has produced since its prompt, and where it stands."""

import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.workload import DecodeWorkload


class TokenHistory:
    """Ids [batch] by position: `position` is the KV-cache length before the next step, and `last()`
    the ids that step feeds. Keeps every id until the next prompt, so that a step can be repeated.
    """

    def __init__(self, workload: DecodeWorkload) -> None:
        self._workload = workload
        self._ids: list[torch.Tensor] = []

    @property
    def position(self) -> int:
        """KV-cache length before the next step; the context as long as nothing was decoded."""
        return self._workload.context + max(0, len(self._ids) - 1)

    def check_prompt(self, ids: torch.Tensor) -> None:
        """Raise `InputError` unless `ids` has the workload's shape [batch, context]."""
        expected = (self._workload.batch, self._workload.context)
        if tuple(ids.shape) != expected:
            raise InputError(
                f"prompt of shape {list(ids.shape)}: the variant was built for batch "
                f"{expected[0]} and context {expected[1]}"
            )

    def start(self, ids: torch.Tensor) -> torch.Tensor:
        """The prompt gave the first new `ids`; returns them."""
        self._ids = [ids]
        return ids

    def last(self) -> torch.Tensor:
        """The ids the next step feeds.

        Raises:
            ModelError: the workload's positions are used up, or there was no prefill.
        """
        if not self._ids:
            raise ModelError("decode step before prefill: give the prompt first")
        if self.position >= self._workload.cache_length:
            raise ModelError(
                f"decode step at position {self.position}: the KV cache was built for "
                f"{self._workload.cache_length} positions"
            )
        return self._ids[-1]

    def force(self, ids: torch.Tensor) -> None:
        """The next step feeds `ids` instead of those that the last one gave.

        Raises:
            InputError: `ids` has another shape than [batch].
            ModelError: as `last`.
        """
        if tuple(ids.shape) != (self._workload.batch,):
            raise InputError(
                f"forced ids of shape {list(ids.shape)}: the variant was built for batch "
                f"{self._workload.batch}"
            )
        self.last()
        self._ids[-1] = ids

    def append(self, ids: torch.Tensor) -> torch.Tensor:
        """A step gave `ids`; returns them."""
        self._ids.append(ids)
        return ids

    def check_rewind(self, position: int) -> None:
        """Raise `InputError` unless decoding stood at `position` since the prompt."""
        first = self._workload.context
        if not self._ids or not first <= position <= self.position:
            raise InputError(
                f"reset to position {position}: can only go back to {first} up to {self.position}"
            )

    def rewind(self, position: int) -> None:
        """Forget what was decoded after `position`."""
        del self._ids[position - self._workload.context + 1 :]
