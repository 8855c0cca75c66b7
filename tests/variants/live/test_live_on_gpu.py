"""The worker's loop on a CUDA device: settings, single steps, memory that runs out, meters."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from decodescope.analyzer.machine.meters import open_meters
from decodescope.analyzer.protocol.messages import (
    AppMessage,
    CaptureTrace,
    ChangeSettings,
    Failure,
    Hello,
    Meters,
    Pause,
    Progress,
    Quit,
    State,
    Stats,
    StepOnce,
    SwitchVariant,
    TraceReady,
    WorkerConfig,
    WorkerMessage,
)
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.variants.live.loop import LiveLoop
from decodescope.variants.live.session import TorchSession, open_session
from decodescope.variants.live.windows import WindowFiles

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    # Warnings of torch.compile's own imports and of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

Condition = Callable[[WorkerMessage], bool]


class AskingChannel:
    """Sends each message of the app as soon as what it waits for was said; keeps what was said."""

    dropped = 0

    def __init__(self, *script: tuple[Condition, AppMessage]) -> None:
        self._script = list(script)
        self._ready = False
        self.said: list[WorkerMessage] = []

    def send(self, message: WorkerMessage) -> None:
        self.said.append(message)
        self._ready = self._ready or bool(self._script and self._script[0][0](message))

    def send_stats(self, stats: Stats) -> bool:
        self.send(stats)
        return True

    def receive(self) -> list[AppMessage]:
        if not self._ready:
            return []
        self._ready = False
        return [self._script.pop(0)[1]]

    def wait(self) -> list[AppMessage]:
        messages = self.receive()
        assert messages, f"nothing runs, and nothing is asked for after {self.said[-5:]}"
        return messages

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]


def figures(message: WorkerMessage) -> bool:
    return isinstance(message, Stats) and message.steps > 1


def one_step(message: WorkerMessage) -> bool:
    return isinstance(message, Stats) and message.steps == 1


def state(name: str) -> Condition:
    return lambda message: isinstance(message, State) and message.state == name


def failure(message: WorkerMessage) -> bool:
    return isinstance(message, Failure)


@pytest.fixture
def session() -> TorchSession:
    config = WorkerConfig(
        variant="eager", batch=1, tokens=400, model="tiny", device="cuda", dtype="bf16", context=32
    )
    return open_session(config, lambda stage: None)


@pytest.mark.parametrize("variant", ["eager", "fused+graph"])
def test_settings_change_without_loading_and_memory_comes_back(
    session: TorchSession, tmp_path: Path, variant: str
) -> None:
    model = session._prepared.loaded.model
    wide = msgspec.structs.replace(session.settings, batch=8, context=256)
    drawn = msgspec.structs.replace(
        session.settings,
        context=None,
        prompt="def read(path):",
        sampling=SamplingSettings(0.7, 20, None, 1),
    )
    absurd = msgspec.structs.replace(session.settings, batch=1 << 20)
    channel = AskingChannel(
        (figures, ChangeSettings(wide)),
        (lambda m: figures(m) and session.batch == 8, ChangeSettings(absurd)),
        (failure, ChangeSettings(drawn)),
        # A generation's first ids arrive after its first figures.
        (lambda m: figures(m) and session.batch == 1 and m.text, Quit()),  # type: ignore[union-attr]
    )
    LiveLoop(session, channel, WindowFiles(tmp_path)).run(variant)
    assert next((h.batch, h.sampling is None) for h in channel.of(Hello)) == (8, True)
    assert (channel.of(Hello)[-1].batch, channel.of(Hello)[-1].sampling) == (1, drawn.sampling)
    (refused,) = channel.of(Failure)
    assert not refused.fatal
    assert "\n" not in refused.message
    assert channel.of(Stats)[-1].text
    assert session._prepared.loaded.model is model
    assert not any("loading" in progress.stage for progress in channel.of(Progress))


def test_single_steps_and_a_window_while_paused(session: TorchSession, tmp_path: Path) -> None:
    channel = AskingChannel(
        (figures, Pause()),
        (state("paused"), StepOnce()),
        (one_step, StepOnce()),
        (one_step, StepOnce()),
        (one_step, CaptureTrace()),
        (lambda m: isinstance(m, TraceReady) and m.requested, Quit()),
    )
    LiveLoop(session, channel, WindowFiles(tmp_path)).run("fused+graph")
    alone = [stats for stats in channel.of(Stats) if stats.steps == 1][-3:]
    # A pause at the end of a round leaves one of the steps to the next round.
    first, second = next(pair for pair in pairwise(alone) if pair[0].round == pair[1].round)
    assert second.position == first.position + 1
    assert len(second.text) > len(first.text)
    assert second.step_p50_ns > 0
    assert channel.of(TraceReady)[-1].capture.steps == 3


@pytest.mark.parametrize("where", ["step", "capture", "build"])
def test_memory_that_runs_out_leaves_the_loop_usable(
    session: TorchSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def run_out(*_: Any, **__: Any) -> Any:
        return torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

    build, capture = session.build, session.capture

    def build_or_not(variant: str, say: Callable[[str], None]) -> Any:
        if variant == "fused" and where == "build":
            run_out()
        step = build(variant, say)
        if variant == "fused" and where == "step":
            monkeypatch.setattr(step, "_advance", run_out)
        return step

    def capture_or_not(variant: str, *rest: Any) -> Any:
        if variant == "fused" and where == "capture":
            run_out()
        return capture(variant, *rest)

    monkeypatch.setattr(session, "build", build_or_not)
    monkeypatch.setattr(session, "capture", capture_or_not)
    channel = AskingChannel(
        (figures, SwitchVariant("fused")),
        (failure, SwitchVariant("fused+graph")),
        (lambda m: figures(m) and m.variant == "fused+graph", Quit()),  # type: ignore[union-attr]
    )
    LiveLoop(session, channel, WindowFiles(tmp_path)).run("eager")
    (failed,) = channel.of(Failure)
    assert "out of GPU memory" in failed.message
    assert "GiB are free" in failed.message
    assert (failed.exit_code, failed.fatal) == (3, False)


def test_the_meters_are_those_of_the_workers_gpu(session: TorchSession) -> None:
    pytest.importorskip("pynvml")
    uuid = session.hello().gpu_uuid
    assert uuid is not None
    meters = open_meters(uuid)
    assert meters is not None
    read = meters.read()
    meters.close()
    assert isinstance(read, Meters)
    total = torch.cuda.get_device_properties(0).total_memory
    assert read.memory_total_bytes == pytest.approx(total, rel=0.05)
    assert read.power_w is not None
    assert 10 < read.power_w < 2000
