"""Whether two measurements are of one workload, and in which words they differ."""

from typing import Protocol

from decodescope.analyzer.formatting import sampling_words
from decodescope.analyzer.schema.report import Weights


class Workload(Protocol):
    """What has to be equal before two speeds may be compared; runs and captures have it."""

    @property
    def model(self) -> str: ...
    @property
    def weights(self) -> Weights: ...
    @property
    def dtype(self) -> str: ...
    @property
    def batch(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def device_name(self) -> str: ...


_FIELDS = (
    "model", "weights", "dtype", "batch", "context", "tokens", "sampling", "device", "device_name"
)  # fmt: skip


def workload_differences(one: Workload, two: Workload) -> tuple[str, ...]:
    """Each difference as "batch 1 against 4"; `tokens` and `sampling` count where both have
    them."""
    return tuple(
        f"{name.replace('_', ' ')} {_word(one, name)} against {_word(two, name)}"
        for name in _FIELDS
        if hasattr(one, name) and hasattr(two, name) and getattr(one, name) != getattr(two, name)
    )


def _word(workload: Workload, name: str) -> str:
    value = getattr(workload, name)
    return sampling_words(value) if name == "sampling" else str(value)
