"""A live session without a model, whose time passes only when it steps."""

import json
from collections.abc import Callable
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    AppMessage,
    Hello,
    Quit,
    Settings,
    Stats,
    WorkerMessage,
)
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.variants.measuring.window import WindowPlan


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


class FakeStep:
    weight_bytes_read = 1_000
    expert_choices = None

    def __init__(self, session: "FakeSession", variant: str) -> None:
        self._session = session
        self.variant = variant
        self.position = 0
        self.annotated = False
        self.poisoned: Exception | None = None

    def prefill(self, ids: list[int]) -> int:
        self._session.events.append(f"prefill {ids}")
        self.position = len(ids)
        return self._next()

    def step(self) -> int:
        if self.poisoned is not None:
            error, self.poisoned = self.poisoned, None
            raise error
        self._session.clock.now_ns += self._session.step_ns * (3 if self.annotated else 1)
        self._session.pacer.stepped = not self.annotated
        self.position += 1
        return self._next()

    def _next(self) -> int:
        return ord("a") + self.position % 26

    def kv_bytes_read(self, position: int) -> int:
        return 10 * position


class FakePacer:
    """Returns each step one call late, as a device would; `before_first` discards it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._last = 0
        self._held: list[int] = []
        self.stepped = False

    def before_first(self) -> None:
        self._held.clear()
        self._last = self._clock.now_ns

    def after_step(self) -> list[int]:
        done, self._held = self._held, [self._clock.now_ns - self._last]
        self._last = self._clock.now_ns
        return done

    def drain(self) -> list[int]:
        done, self._held = self._held, []
        return done


class FakeTap:
    """Ids arrive one exchange late, as from a device."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._arriving: list[int] = []
        self.add = self._ids.append

    def exchange(self) -> list[int]:
        arrived, self._arriving = self._arriving, self._ids.copy()
        self._ids.clear()
        return arrived

    def finish(self) -> list[int]:
        return self.exchange() + self.exchange()

    def clear(self) -> None:
        self.finish()


class FakeSession:
    def __init__(self, new_tokens: int = 50, step_ns: int = 2_000_000, batch: int = 1) -> None:
        self.batch = batch
        self.new_tokens = new_tokens
        self.step_ns = step_ns
        self.clock = FakeClock()
        self.pacer = FakePacer(self.clock)
        self.tap = FakeTap()
        self.decode: Callable[[list[int]], str] = lambda ids: "".join(map(chr, ids))
        self.events: list[str] = []
        self.steps: list[FakeStep] = []
        self.broken: set[str] = set()
        self.settings = Settings(batch, new_tokens, model="one")
        self.refused: dict[str, DecodescopeError] = {}
        self.unloadable: dict[str, Exception] = {}
        self.capture_error: Exception | None = None

    def refusal(self, variant: str) -> DecodescopeError | None:
        known = ("eager", "compiled", "other", "fused")
        return None if variant in known else InputError(f"unknown variant {variant!r}")

    def interprets(self, variant: str) -> bool:
        return variant == "fused"

    def check(self, settings: Settings, variant: str) -> None:
        if settings.model in self.refused:
            raise self.refused[settings.model]

    def adopt(self, settings: Settings, variant: str, say: Callable[[str], None]) -> None:
        say(f"loading {settings.model}")
        self.events.append(f"adopt {settings.model} batch {settings.batch} for {variant}")
        if settings.model in self.unloadable:
            raise self.unloadable[settings.model]
        self.settings = settings
        self.batch, self.new_tokens = settings.batch, settings.tokens

    def hello(self) -> Hello:
        return Hello(
            PROTOCOL_VERSION,
            1,
            "cpu",
            "fake",
            self.settings.model or "",
            "random",
            "fp32",
            self.batch,
            4,
            self.new_tokens,
            (),
            None,
            None,
            {},
            settings=self.settings,
        )

    def build(self, variant: str, say: Callable[[str], None]) -> FakeStep:
        say("building")
        self.events.append(f"build {variant}")
        if variant in self.broken:
            raise RuntimeError(f"no {variant}\nsecond line")
        self.steps.append(FakeStep(self, variant))
        return self.steps[-1]

    def release(self) -> None:
        self.events.append("release")

    def prompt(self, generation: int) -> list[int]:
        return [generation, 1, 2, 3]

    def explain(self, error: Exception) -> DecodescopeError | None:
        if isinstance(error, MemoryError):
            return MissingRequirement("out of memory")
        return error if isinstance(error, DecodescopeError) else None

    def capture(
        self,
        variant: str,
        step: FakeStep,
        plan: WindowPlan,
        unprofiled_step_ns: int | None,
        path: Path,
    ) -> CaptureInfo:
        if self.capture_error is not None:
            raise self.capture_error
        info = CaptureInfo(
            device="cpu",
            device_name="fake",
            model="fake",
            weights="random",
            variant=variant,
            dtype="fp32",
            batch=self.batch,
            context=4,
            position=step.position + plan.warm + plan.lead,
            steps=plan.steps,
            bytes_per_step=1,
            unprofiled_step_ns=unprofiled_step_ns,
            decodescope_version="0",
            lead_steps=plan.lead,
        )
        step.annotated = True
        for _ in range(plan.warm + plan.lead):
            self.tap.add(step.step())
        assert step.position == info.position
        before = self.clock.now_ns
        for _ in range(plan.steps):
            self.tap.add(step.step())
        step.annotated = False
        path.write_text(json.dumps({"steps": plan.steps, "ns": self.clock.now_ns - before}))
        return info


class ScriptedChannel:
    """Delivers app messages at given times of the fake clock, then `Quit`; keeps what is sent.

    `wait()` jumps to the next message, as sleeping would.
    """

    def __init__(self, clock: FakeClock, script: list[tuple[float, AppMessage]]) -> None:
        self._clock = clock
        self._script = [(round(seconds * 1e9), message) for seconds, message in script]
        self.dropped = 0
        self.full = False
        self.sent: list[tuple[int, WorkerMessage]] = []
        self.waits = 0
        self.receives = 0

    def send(self, message: WorkerMessage) -> None:
        self.sent.append((self._clock.now_ns, message))

    def send_stats(self, stats: Stats) -> bool:
        if self.full:
            self.dropped += 1
            return False
        self.send(stats)
        return True

    def receive(self) -> list[AppMessage]:
        self.receives += 1
        due = [m for at, m in self._script if at <= self._clock.now_ns]
        self._script = self._script[len(due) :]
        return due

    def wait(self) -> list[AppMessage]:
        self.waits += 1
        if not self._script:
            return [Quit()]
        self._clock.now_ns = max(self._clock.now_ns, self._script[0][0])
        return self.receive()

    def of(self, kind: type) -> list[WorkerMessage]:
        return [message for _, message in self.sent if isinstance(message, kind)]
