"""What the live loop needs of its collaborators; none of it names a device or a library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import AppMessage, Stats, WorkerMessage
from decodescope.analyzer.report import CaptureInfo


class LiveStep(Protocol):
    """What the loop needs of a `DecodeStep`; ids are whatever the session's tap takes."""

    position: int
    weight_bytes_read: int

    def prefill(self, ids: Any) -> Any: ...
    def step(self) -> Any: ...
    def kv_bytes_read(self, position: int) -> int: ...
    def annotate_layers(self, enabled: bool) -> None: ...


class Pacer(Protocol):
    """See `decodescope.variants.pacing.StepPacer`."""

    def before_first(self) -> None: ...
    def after_step(self) -> list[int]: ...
    def drain(self) -> list[int]: ...


class Tap(Protocol):
    """See `decodescope.variants.token_tap.TokenTap`."""

    def add(self, ids: Any) -> None: ...
    def exchange(self) -> list[int]: ...
    def finish(self) -> list[int]: ...
    def clear(self) -> None: ...


class LiveSession(Protocol):
    """A loaded model and what can be done with it.

    `refusal` says why a variant cannot be built (unknown, unavailable), None if it can; `explain`
    turns an error that the user can do something about into one line, None for any other.
    """

    batch: int
    new_tokens: int
    decode: Callable[[list[int]], str] | None

    @property
    def pacer(self) -> Pacer: ...
    @property
    def tap(self) -> Tap: ...
    def refusal(self, variant: str) -> DecodescopeError | None: ...
    def build(self, variant: str) -> LiveStep: ...
    def release(self) -> None: ...
    def prompt(self, generation: int) -> Any: ...
    def explain(self, error: Exception) -> DecodescopeError | None: ...
    def capture_info(
        self, variant: str, step: Any, steps: int, unprofiled_step_ns: int | None, warm_steps: int
    ) -> CaptureInfo: ...
    def capture(
        self,
        step: Callable[[], object],
        steps: int,
        path: Path,
        info: CaptureInfo,
        warm_steps: int,
    ) -> None: ...


class LiveChannel(Protocol):
    """See `decodescope.variants.channel.Channel`."""

    dropped: int

    def send(self, message: WorkerMessage) -> None: ...
    def send_stats(self, stats: Stats) -> bool: ...
    def receive(self) -> list[AppMessage]: ...
    def wait(self) -> list[AppMessage]: ...
