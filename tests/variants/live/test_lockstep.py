"""The live loops of several ranks: rank 0's clock and the app's messages lead all of them."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch.distributed as dist

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import (
    AppMessage,
    Bye,
    CaptureTrace,
    ChangeSettings,
    FrameDecoder,
    Hello,
    Pause,
    Quit,
    Resume,
    Settings,
    Stats,
    StepOnce,
    SwitchVariant,
    TraceReady,
    WorkerConfig,
    WorkerMessage,
    encode_frame,
)
from decodescope.variants.live import worker
from decodescope.variants.live.channel import ChannelClosed
from decodescope.variants.live.lockstep import RankChannel, RankClock
from decodescope.variants.live.loop import LiveLoop
from decodescope.variants.live.windows import WindowFiles
from decodescope.variants.parallel.ranks import Ranks
from tests.helpers.fake_session import FakeSession, ScriptedChannel
from tests.helpers.rank_groups import PATIENCE_S, started_ranks
from tests.helpers.rank_processes import on_ranks

SCRIPT: list[tuple[float, AppMessage]] = [
    (0.1, Pause()),
    (0.2, StepOnce()),
    (0.3, Resume()),
    (0.4, SwitchVariant("compiled")),
    (0.5, CaptureTrace()),
    (0.6, ChangeSettings(Settings(2, 30, model="two"))),
    (1.0, Quit()),
]


class _App(ScriptedChannel):
    """An app that is gone after `closes_s`, if it does not say Quit."""

    def __init__(self, session: FakeSession, script: list[tuple[float, AppMessage]]) -> None:
        super().__init__(session.clock, script)
        self._closes = not any(isinstance(message, Quit) for _, message in script)

    def receive(self) -> list[AppMessage]:
        messages = super().receive()
        if self._closes and not self._script and not messages:
            raise ChannelClosed
        return messages

    wait_once = ScriptedChannel.wait


def _live(
    ranks: Ranks,
    folder: Path,
    script: list[tuple[float, AppMessage]],
    full: int | None = None,
) -> dict[str, object]:
    """A loop whose steps take another time on each rank; rank `full` cannot write windows."""
    session = FakeSession(step_ns=2_000_000 + ranks.rank * 700_000)
    if ranks.rank == full:
        session.capture_error = InputError("no space left")
    app = _App(session, script) if not ranks.rank else None
    own = folder / f"of-{ranks.rank}"
    own.mkdir()
    loop = LiveLoop(
        session, RankChannel(app, ranks), WindowFiles(own), RankClock(ranks, session.clock), ranks
    )
    loop.run("eager")
    ready = [] if app is None else app.of(TraceReady)
    return {
        "events": session.events,
        "steps": [step.position for step in session.steps],
        "asked": 0 if app is None else app.receives,
        "windows": [json.loads(Path(message.path).read_text())["steps"] for message in ready],
        "files": sorted(path.name for path in own.iterdir()),
    }


def _count_broadcasts(ranks: Ranks, folder: Path) -> tuple[int, int]:
    count = 0
    broadcast = dist.broadcast

    def counted(*operands: object, **options: object) -> object:
        nonlocal count
        count += 1
        return broadcast(*operands, **options)

    dist.broadcast = counted  # type: ignore[assignment]
    session = FakeSession(step_ns=100_000, new_tokens=100_000)
    app = _App(session, [(1, Quit())]) if not ranks.rank else None
    clock, own = RankClock(ranks, session.clock), folder / f"of-{ranks.rank}"
    own.mkdir()
    LiveLoop(session, RankChannel(app, ranks), WindowFiles(own), clock, ranks).run("eager")
    return count, session.steps[-1].position


def test_all_ranks_do_the_same(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, _live, tmp_path, SCRIPT)
    assert first["events"] == second["events"]
    assert "build compiled" in first["events"]
    assert "adopt two batch 2 for compiled" in first["events"]
    assert first["steps"] == second["steps"]
    assert first["windows"]
    windows = len(first["windows"])
    assert len(first["files"]) == 2 * windows
    assert second["files"] == []


def test_a_window_that_one_rank_cannot_write_ends_that_rank(tmp_path: Path) -> None:
    """The others wait for its window; the group ends them."""
    with pytest.raises(AssertionError, match="InputError: no space left"):
        on_ranks(2, tmp_path, _live, tmp_path, SCRIPT, 1)


def test_an_app_that_is_gone_ends_all_ranks(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, _live, tmp_path, [(0.1, Pause()), (0.2, Resume())])
    assert first["steps"] == second["steps"]


def test_ranks_ask_each_other_a_few_times_in_a_batch_of_steps(tmp_path: Path) -> None:
    """A second of 10,000 steps has 50 batches; the first one is asked after each step."""
    (count, steps), other = on_ranks(2, tmp_path, _count_broadcasts, tmp_path)
    assert (count, steps) == other
    assert steps > 9_000
    assert count < 200 + 50 * 12


def _work(folder: Path, control: socket.socket) -> None:
    raise SystemExit(worker.main([str(control.detach()), str(folder / "worker.json")]))


def _until(app: socket.socket, decoder: FrameDecoder, kind: type) -> Iterator[object]:
    """The messages up to the first one of a kind."""
    while data := app.recv(1 << 16):
        for message in decoder.feed(data):
            yield message
            if isinstance(message, kind):
                return


def test_ranks_of_the_worker_decode_for_the_app(tmp_path: Path) -> None:
    config = WorkerConfig(
        batch=1,
        tokens=40,
        variant="eager",
        device="cpu",
        model="tiny",
        context=8,
        tp=2,
        trace_dir=str(tmp_path),
    )
    (tmp_path / "worker.json").write_bytes(msgspec.json.encode(config))
    app, control = socket.socketpair()
    app.settimeout(PATIENCE_S)
    decoder = FrameDecoder(WorkerMessage)
    with app, control, started_ranks(2, tmp_path, _work, tmp_path, control) as ranks:
        heard = list(_until(app, decoder, TraceReady))
        app.sendall(encode_frame(Quit()))
        last = list(_until(app, decoder, Bye))
        ended = [rank.ended() for rank in ranks]
    assert [code for code, _ in ended] == [0, 0], ended
    (hello,) = (message for message in heard if isinstance(message, Hello))
    assert (hello.tp, hello.model) == (2, "tiny")
    assert any(isinstance(message, Stats) and message.tokens for message in heard)
    assert last[-1] == Bye("quit")
    ready = heard[-1]
    assert isinstance(ready, TraceReady)
    assert ready.capture.tp == 2
    assert Path(ready.path).name == "window-0001.rank0.json"
    assert Path(ready.path).with_name("window-0001.rank1.json").exists()
