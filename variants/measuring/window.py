"""Which steps a profiled window runs, and their ranges."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


class Annotated(Protocol):
    """A step whose layers can have ranges."""

    def annotate_layers(self, enabled: bool) -> None: ...


@contextmanager
def annotated(step: Annotated) -> Iterator[None]:
    """Run the block with ranges on the parts of `step`, and leave it without."""
    step.annotate_layers(True)
    try:
        yield
    finally:
        step.annotate_layers(False)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`warm` steps before the recording, `lead` recorded without a marker, and `steps` that count.

    Without a lead the device would wait for the host in the first step that counts, because a
    recording begins with a synchronisation.
    """

    warm: int
    lead: int
    steps: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.warm + self.lead + self.steps


def window_plan(left: int, steps: int) -> WindowPlan:
    """The plan of a window of up to `steps` steps where `left` (at least 1) can be decoded.

    Where they do not suffice the window is shorter first, then has no lead, then no warm step.
    """
    warm = min(1, left - 1)
    lead = min(1, left - 1 - warm)
    return WindowPlan(warm, lead, min(steps, left - warm - lead))
