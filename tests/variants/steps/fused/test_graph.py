"""When a step is launched, captured and replayed; no device is needed to see that."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.steps.fused.graph import StepGraphs

NO_RANGES = SimpleNamespace(open=lambda name: nullcontext())
PLAN: Any = SimpleNamespace(spec="fused+graph", ranges=NO_RANGES)


class Device:
    """Stands for CUDA: notes what is launched, captured and replayed, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.capturing = False
        self.fails_with: Exception | None = None

    def launch_step(self, plan: Any, keep_logits: bool) -> None:
        assert plan is PLAN
        if self.capturing and self.fails_with is not None:
            raise self.fails_with
        self.log.append(f"{'captured' if self.capturing else 'launched'} {keep_logits}")

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
    monkeypatch.setattr("decodescope.variants.steps.fused.graph.launch_step", found.launch_step)
    return found


def test_the_first_step_is_launched_and_all_later_ones_are_replays(cuda: Device) -> None:
    graphs = StepGraphs(PLAN)
    for _ in range(3):
        graphs.run(keep_logits=False)
    assert cuda.log == [
        "launched False",
        "captured False",
        "replay of captured False",
        "replay of captured False",
    ]


def test_keeping_logits_has_a_graph_of_its_own_made_when_needed(cuda: Device) -> None:
    graphs = StepGraphs(PLAN)
    for keep_logits in (False, True, False, True):
        graphs.run(keep_logits)
    assert cuda.log[2:4] == ["launched True", "captured True"]
    assert cuda.log[4:] == ["replay of captured False", "replay of captured True"]


def test_a_failed_capture_is_said_in_one_line(cuda: Device) -> None:
    cuda.fails_with = RuntimeError("not permitted when stream is capturing\nand much more")
    with pytest.raises(MissingRequirement, match=r"fused\+graph.*not permitted") as caught:
        StepGraphs(PLAN).run(keep_logits=False)
    assert "\n" not in str(caught.value)


def test_running_out_of_memory_stays_what_it_is(cuda: Device) -> None:
    cuda.fails_with = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        StepGraphs(PLAN).run(keep_logits=False)
