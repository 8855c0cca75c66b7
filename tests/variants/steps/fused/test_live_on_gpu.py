"""The app's worker on a CUDA device, switched from variant to variant on one loaded model."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from decodescope.analyzer import analyze, load
from decodescope.analyzer.protocol.messages import (
    AppMessage,
    Failure,
    Log,
    Progress,
    Quit,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
    WorkerConfig,
    WorkerMessage,
)
from decodescope.variants.live.loop import LiveLoop
from decodescope.variants.live.session import TorchSession, open_session
from decodescope.variants.live.windows import WindowFiles

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    # Warnings of torch.compile's own imports and of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

# Fused kernels move the weights that graphs of compiled have recorded, and the other way round
# compiled records what fused kernels have moved.
SWITCHES = ("eager", "compiled", "fused", "fused+graph", "compiled", "fused+graph-rope", "eager")
NARROW_SWITCHES = ("fused+graph", "fused+graph+fp8_e4m3", "fused+graph+int8", "fused+graph")


class SwitchingChannel:
    """An app that goes on to the next variant as soon as one has shown figures and a window."""

    dropped = 0

    def __init__(self, later: tuple[str, ...], seen: Callable[[WorkerMessage], None]) -> None:
        self._later = list(later)
        self._seen = seen
        self._wanted: set[type] = {Stats, TraceReady}

    def send(self, message: WorkerMessage) -> None:
        self._seen(message)
        if isinstance(message, State) and message.state == "running":
            self._wanted = {Stats, TraceReady}
        self._wanted.discard(type(message))

    def send_stats(self, stats: Stats) -> bool:
        if stats.text:
            self.send(stats)
        return True

    def receive(self) -> list[AppMessage]:
        if self._wanted:
            return []
        self._wanted = {Stats, TraceReady}
        return [SwitchVariant(self._later.pop(0))] if self._later else [Quit()]

    def wait(self) -> list[AppMessage]:
        raise AssertionError("the loop has nothing to run")


@pytest.fixture
def session(tmp_path: Path) -> TorchSession:
    # A given prompt is the same in every round, and so is the text after it.
    config = WorkerConfig(
        variant="eager",
        batch=2,
        tokens=60,
        model="tiny",
        device="cuda",
        dtype="fp32",
        prompt="def read(path):",
    )
    return open_session(config, lambda stage: None)


def test_every_variant_goes_on_writing_the_same_text(session: TorchSession, tmp_path: Path) -> None:
    offered = {info.name: info.unavailable for info in session.hello().variants}
    assert [offered[name] for name in ("eager", "compiled", "fused", "fused+graph")] == [None] * 4
    states: list[str] = []
    texts: list[set[str]] = []
    windows: list[dict[str, Any]] = []

    def seen(message: WorkerMessage) -> None:
        assert not isinstance(message, Failure | Log), message
        if isinstance(message, State) and message.state == "building":
            states.append(message.variant)
            texts.append(set())
        elif isinstance(message, Stats):
            texts[-1].add(message.text)
        elif isinstance(message, TraceReady):
            # Only the last few files are kept.
            report = analyze(load(Path(message.path))).report
            calls = {step.launch_calls for step in report.steps}
            windows.append({"variant": message.capture.variant, "calls": calls, "report": report})

    channel = SwitchingChannel(SWITCHES[1:], seen)
    LiveLoop(session, channel, WindowFiles(tmp_path)).run(SWITCHES[0])

    assert states == list(SWITCHES)
    longest = max((text for shown in texts for text in shown), key=len)
    assert all(texts)
    assert all(longest.startswith(text) for shown in texts for text in shown)
    assert {window["variant"] for window in windows} == set(SWITCHES)
    for window in windows:
        if "graph" in window["variant"]:
            attribution = window["report"].attribution
            assert (attribution.partial, attribution.none) == (0, 0)
            assert window["calls"] == {1}


def test_the_weights_come_back_for_the_variant_that_needs_them(
    session: TorchSession, tmp_path: Path
) -> None:
    states: list[str] = []
    texts: list[set[str]] = []
    sizes: list[int] = []
    loads: list[str] = []

    def seen(message: WorkerMessage) -> None:
        assert not isinstance(message, Failure | Log), message
        if isinstance(message, State) and message.state == "building":
            states.append(message.variant)
            texts.append(set())
            sizes.append(0)
        elif isinstance(message, Stats):
            texts[-1].add(message.text)
            sizes[-1] = message.bytes_per_step
        elif isinstance(message, Progress) and message.stage.startswith("loading the fp32"):
            loads.append(states[-1])

    channel = SwitchingChannel(NARROW_SWITCHES[1:], seen)
    LiveLoop(session, channel, WindowFiles(tmp_path)).run(NARROW_SWITCHES[0])
    assert states == list(NARROW_SWITCHES)
    assert loads == ["fused+graph+int8", "fused+graph"]
    wide = texts[0] | texts[-1]
    assert all(max(wide, key=len).startswith(text) for text in wide)
    assert max(sizes[1:3]) < 0.5 * min(sizes[0], sizes[-1])


def test_a_dropped_fused_step_gives_its_memory_back(session: TorchSession) -> None:
    def held() -> int:
        gc.collect()
        session.release()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    for variant in ("fused", "fused+graph"):
        step = session.build(variant, lambda stage: None)
        step.prefill(session.prompt(0))
        step.step()
        del step
        before = held()
        step = session.build(variant, lambda stage: None)
        assert torch.cuda.memory_allocated() > before
        step.prefill(session.prompt(0))
        step.step()
        del step
        # The driver's and cuBLAS's own workspaces stay.
        assert held() <= before + 2**20
