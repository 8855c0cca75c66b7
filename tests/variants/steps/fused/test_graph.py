"""When a step is launched, captured and replayed; no device is needed to see that."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import Launch, Operation
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.program import PlacedOperation, StepGraph


class Device(Operation):
    """Stands for CUDA, and for what a step launches: notes what is launched, captured and replayed,
    in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.capturing = False
        self.fails_with: Exception | None = None

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        if self.capturing and self.fails_with is not None:
            raise self.fails_with
        self.log.append("captured" if self.capturing else "launched")
        return ()

    def step(self, *paths: tuple[str, ...], ranges: LayerRanges | None = None) -> StepGraph:
        """A step that launches once for each path, without any once."""
        placed = [PlacedOperation(path, self) for path in paths or (("model",),)]
        return StepGraph(placed, ranges or LayerRanges(None), False, "fused+graph")

    @contextmanager
    def capture(self, graph: Any, capture_error_mode: str) -> Iterator[None]:
        self.capturing, before = True, len(self.log)
        try:
            yield
        finally:
            self.capturing = False
        graph.replay = lambda: self.log.append(f"replay of {self.log[before]}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", found.capture)
    return found


def test_the_first_step_is_launched_and_all_later_ones_are_replays(cuda: Device) -> None:
    step = cuda.step()
    for _ in range(3):
        step.run()
    assert cuda.log == ["launched", "captured", "replay of captured", "replay of captured"]


@pytest.mark.parametrize(
    ("paths", "around"),
    [
        ([("model", "layer.0"), ("model", "lm_head")], ["model"]),
        ([("model", "layer.0"), ("sampling",)], []),
    ],
)
def test_a_replay_is_in_the_range_that_is_around_every_operation(
    cuda: Device, paths: list[tuple[str, ...]], around: list[str]
) -> None:
    class Opened(LayerRanges):
        def open(self, name: str) -> AbstractContextManager[None]:
            opened.append(name)
            return nullcontext()

    opened: list[str] = []
    step = cuda.step(*paths, ranges=Opened(None))
    step.run()
    opened.clear()
    step.run()
    assert opened == around


def test_a_failed_capture_is_said_in_one_line(cuda: Device) -> None:
    cuda.fails_with = RuntimeError("not permitted when stream is capturing\nand much more")
    with pytest.raises(MissingRequirement, match=r"fused\+graph.*not permitted") as caught:
        cuda.step().run()
    assert "\n" not in str(caught.value)


def test_running_out_of_memory_stays_what_it_is(cuda: Device) -> None:
    cuda.fails_with = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        cuda.step().run()
