"""A door into something that runs: it opens windows, and says what watching costs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.servers.metrics import ServerMetrics

if TYPE_CHECKING:
    from decodescope.analyzer.reports.rank_analysis import ServerTraces


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The length of a window, in iterations of the target or else in milliseconds, and the `folder`
    for the files that the target writes. The door into a server calls `begin` just before it opens
    the window: there a group waits for its last server; the endpoint of an engine says with `say`
    what it waits for. In a process, the profiler runs `added_warmup_s` longer before the window
    than it needs to start."""

    folder: Path
    duration_ms: int
    iterations: int | None = None
    added_warmup_s: int = 0
    begin: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda stage: None


@dataclass(frozen=True, slots=True)
class CapturedWindow:
    """The traces of one window, one a rank, and what the target did meanwhile. The window of a
    `group` has the traces of all its `servers`; `group` are its figures in the second before."""

    traces: tuple[Path, ...]
    observer: ObserverReport
    group: ServerFigures | None = None
    servers: tuple["ServerTraces", ...] = ()


class Closeable(ABC):
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Door(Closeable):
    """Open it with `with`: its end leaves nothing behind, in the target as here."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The target in words: "vLLM 0.32.0 at http://127.0.0.1:8000, serving tiny"."""

    @property
    @abstractmethod
    def cost(self) -> str:
        """The cost of a window to the target, in one line that is said before the first one."""

    @property
    def model(self) -> str | None:
        """The model that the target names, as `--model` takes it; None if it names none."""
        return None

    @property
    def has_windows(self) -> bool:
        """Whether the target can be asked for windows; it may still refuse one."""
        return True

    def metrics(self) -> ServerMetrics | None:
        """The metrics of the target now, also during a window; None if it has none, as a process.

        Raises:
            DecodescopeError: the target does not answer, or with something else.
        """
        return None

    def look_again(self) -> None:
        """Find out anew what the target is: a server that ended may be another one now.

        Raises:
            DecodescopeError: the target does not answer, or is nothing that has a door.
        """
        return

    @abstractmethod
    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        """Open a window, wait for its end and for its files; `say` is called for each stage.

        Raises:
            DecodescopeError: the target refuses, dies or stays silent; nothing is left behind.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the target. A window that another thread is taking ends within a second, with an
        error."""
