"""A door that does as a test says, without sockets."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError, MissingRequirement
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.servers.metrics import Histogram, ServerMetrics
from tests.helpers.scripted import write_trace

TARGET = "vLLM 0.32.0 at http://127.0.0.1:8000, serving tiny"
COST = (
    "a window slows decoding while it lasts (24 to 36 % of a PyTorch loop on an H200, more with "
    "Python stacks), and by 1 to 4 % afterwards until the server restarts"
)
BOUNDS_S = (0.01, 0.02, float("inf"))


def metrics(second: int, tokens: float | None = None) -> ServerMetrics:
    """A server after `second` seconds at 1,000 tokens/s: half of them within 10 ms."""
    tokens = 1000.0 * second if tokens is None else tokens
    return ServerMetrics(
        time_s=float(second),
        generated_tokens=tokens,
        prompt_tokens=tokens / 4,
        running=8.0,
        waiting=3.0,
        kv_fill=0.25,
        inter_token_latency=Histogram(BOUNDS_S, (tokens / 2, tokens, tokens)),
    )


def one_trace(folder: Path, number: int) -> Sequence[Path]:
    return (write_trace(folder / f"w{number}.json"),)


@dataclass
class ScriptedDoor(Door):
    """`answers` are those of `metrics`, in turn; the last one is given again. `refusals` are why
    the next windows fail. `write` makes the files of the n-th window, which waits for `go`; `close`
    ends it. When it is looked at again, the target has the name and the model of `becomes`."""

    folder: Path
    answers: list[ServerMetrics | str | None] = field(default_factory=lambda: [None])
    refusals: list[Exception] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    write: Callable[[Path, int], Sequence[Path]] = one_trace
    name: str = TARGET
    price: str = COST
    served: str | None = None
    opens: bool = True
    is_known: bool = True
    becomes: tuple[str, str] | None = None
    asked: int = 0
    taken: int = 0
    closed: bool = False
    left_during_window: bool = False

    def __post_init__(self) -> None:
        self.go.set()
        self._left = threading.Event()

    @property
    def target(self) -> str:
        return self.name

    @property
    def cost(self) -> str:
        return self.price

    @property
    def model(self) -> str | None:
        return self.served

    @property
    def has_windows(self) -> bool:
        return self.opens

    def look_again(self) -> None:
        if isinstance(self.answers[0], str):
            raise MissingRequirement(self.answers[0])
        self.name, self.served = self.becomes or (self.name, self.served)

    def metrics(self) -> ServerMetrics | None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise MissingRequirement(answer)
        return answer

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        if self.refusals:
            raise self.refusals.pop(0)
        say("records 300 ms")
        while not self.go.wait(0.005):
            if self._left.is_set():
                self.left_during_window = True
                raise DecodescopeError("the window was left")
        self.taken += 1
        traces = tuple(self.write(self.folder, self.taken))
        return CapturedWindow(traces, ObserverReport("vllm", TARGET, 1000.0, 640.0, 960.0))

    def close(self) -> None:
        self.closed = True
        self._left.set()
