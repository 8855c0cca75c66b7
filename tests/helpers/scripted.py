"""A scripted worker, a clock that stands still, and a captured trace."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    AppMessage,
    Hello,
    Log,
    Pause,
    Resume,
    Settings,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
    VariantInfo,
)
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Link, LinkEvent, WorkerDied
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.model.view import AppClock
from decodescope.tui.terminal_app import TerminalTraits

DIED = WorkerDied(-9, ("loading weights", "CUDA error: an illegal memory access"))
VARIANTS = (
    VariantInfo("eager", "transformers as people run it"),
    VariantInfo("compiled", "torch.compile with CUDA graphs"),
    VariantInfo("fused+graph", "own kernels", "needs a GPU of compute capability 8.0"),
)
TEXT = '''def __init__(self, path, *, mode="r"):
        """Open the archive and read its table of contents."""
        self._path = os.fspath(path)
        if mode not in ("r", "w", "a"):
            raise ValueError("mode must be 'r', 'w' or 'a'")
        self._entries = {}
        for entry in self._read_entries():
            self._entries[entry.name] = ent'''
_KERNELS = (
    ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", 11_000),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>", 1_400),
    ("void at::native::reduce_kernel<512, 1, at::native::MeanOps<float>>", 2_300),
    ("flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 128, 4>>", 4_100),
)
STEPS, OPS = 3, 48


class StillClock(AppClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def local(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5)


@dataclass
class ScriptedLink(Link):
    """Delivers what `say` was called with, and keeps what it was sent."""

    sent: list[AppMessage] = field(default_factory=list)
    restarts: int = 0
    ended: bool = False
    closed: bool = False
    answers: bool = False
    asked: Settings | None = None

    def __post_init__(self) -> None:
        self._events: asyncio.Queue[LinkEvent | None] = asyncio.Queue()
        self._state = "running"
        self._variant = "eager"

    @property
    def settings(self) -> Settings | None:
        return self.asked

    def say(self, *events: LinkEvent | None) -> None:
        for event in events:
            self._events.put_nowait(event)

    async def receive(self) -> LinkEvent | None:
        return await self._events.get()

    async def send(self, message: AppMessage) -> None:
        self.sent.append(message)
        if not self.answers:
            return
        match message:
            case Pause():
                self._state = "paused"
            case Resume():
                self._state = "running"
            case SwitchVariant(variant=variant):
                self._variant = variant
        self.say(State(self._state, self._variant))

    async def end(self) -> None:
        self.ended = True

    async def restart(self) -> None:
        self.restarts += 1

    async def close(self) -> None:
        self.closed = True
        self._events.put_nowait(None)


def hello(device: str = "cuda") -> Hello:
    cuda = device == "cuda"
    return Hello(
        protocol=PROTOCOL_VERSION,
        pid=4242,
        device=device,
        device_name="NVIDIA H200" if cuda else "AMD EPYC",
        model="llama-3.2-1b@random" if cuda else "tiny",
        weights="random" if cuda else "bundled",
        dtype="bf16" if cuda else "fp32",
        batch=1,
        context=128,
        tokens=128,
        variants=VARIANTS,
        measured_peak_bytes_per_s=4.1e12 if cuda else None,
        datasheet_peak_bytes_per_s=4.8e12 if cuda else None,
        environment={},
    )


def stats(seq: int, variant: str = "eager", tokens_per_s: float = 47.2, text: str = TEXT) -> Stats:
    return Stats(
        seq=seq,
        dropped=0,
        variant=variant,
        tokens=1200 + 12 * seq,
        position=145,
        round=9,
        steps=47,
        tokens_per_s=tokens_per_s,
        step_p50_ns=int(1e9 / tokens_per_s),
        step_p99_ns=int(1.1e9 / tokens_per_s),
        bytes_per_step=2_470_000_000,
        text=text,
    )


def capture(variant: str = "eager") -> CaptureInfo:
    return CaptureInfo(
        device="cuda",
        device_name="NVIDIA H200",
        model="llama-3.2-1b@random",
        weights="random",
        variant=variant,
        dtype="bf16",
        batch=1,
        context=128,
        position=145,
        steps=STEPS,
        bytes_per_step=2_470_000_000,
        unprofiled_step_ns=1_500_000,
        decodescope_version="0.1.0",
    )


def write_trace(path: Path, variant: str = "eager") -> Path:
    """Steps in which the host launches one kernel every 30 µs and the kernels take far less."""
    events: list[dict[str, object]] = []
    at_us, correlation = 100, 1
    for step in range(STEPS):
        begin = at_us
        for op in range(OPS):
            name, length_ns = _KERNELS[(op * 7 + step) % len(_KERNELS)]
            args = {"correlation": correlation, "device": 0, "stream": 7}
            events.append(
                {
                    "ph": "X",
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "pid": 1,
                    "tid": 1,
                    "ts": at_us,
                    "dur": 4,
                    "args": args,
                }
            )
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": name,
                    "pid": 0,
                    "tid": 7,
                    "ts": at_us + 6,
                    "dur": length_ns / 1000,
                    "args": args,
                }
            )
            correlation += 1
            at_us += 200 if op == OPS // 2 else 30
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"decode_step_{step}",
                "pid": 1,
                "tid": 1,
                "ts": begin,
                "dur": at_us - begin - 5,
            }
        )
    document = {
        "decodescope": msgspec.to_builtins(capture(variant)),
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


def ready(path: Path, variant: str = "eager", requested: bool = False) -> TraceReady:
    return TraceReady(str(path), capture(variant), requested)


async def play(app: DecodescopeApp, link: ScriptedLink, clock: StillClock) -> None:
    """Ninety seconds: eager, compiled from 50, eager again from 75; each report is read first."""
    noise = random.Random(1)
    link.say(hello(), Log("info", "weights loaded in 2.1 s"), State("running", "eager"))
    for second in range(90):
        clock.now += 1
        variant = "compiled" if 50 <= second < 75 else "eager"
        if second in (50, 75):
            link.say(State("running", variant))
        level = 212.0 if variant == "compiled" else 47.2
        link.say(stats(second, variant, level * noise.uniform(0.94, 1.02)))
        while not link._events.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)


def live_app(
    link: ScriptedLink,
    clock: StillClock,
    folder: Path,
    traits: TerminalTraits | None = None,
    cpu_chosen: bool = False,
) -> DecodescopeApp:
    return DecodescopeApp(LiveSource(link, cpu_chosen), traits, clock, folder)


def text_of(app: DecodescopeApp) -> str:
    """What the terminal shows, as lines of text."""
    width = app.size.width
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width].rstrip() for strip in strips)


async def settle(pilot) -> None:
    """Wait until everything delivered is read, analysed and painted."""
    for _ in range(3):
        await pilot.pause()
        for worker in pilot.app.workers:
            if worker.name != "link":
                await worker.wait()
    pilot.app._painter.paint()
    await pilot.pause()


class Session:
    """An app under test with its link, its clock and a folder for its files."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.link, self.clock, self.folder = ScriptedLink(), StillClock(), folder
        self.app = live_app(self.link, self.clock, folder, **options)

    async def run(self, pilot, *events: object) -> None:
        self.link.say(hello(), State("running", "eager"), stats(1), *events)
        await settle(pilot)
