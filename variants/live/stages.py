"""Announces the slow stages of starting and building, with the time that each took before."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from decodescope.analyzer.protocol.messages import Progress, WorkerMessage
from decodescope.variants.machine.cache_folder import keep_measured, kept_measured

FILE_NAME = "stages.json"
_MOST_KEPT = 200


class Stages:
    """Sends a `Progress` for each stage; a stage ends when the next one begins, or with `done`.

    `model` is part of what a duration is remembered for, since loading and building depend on it.
    Durations are kept in the file `path`; None keeps them in memory.
    """

    def __init__(
        self,
        send: Callable[[WorkerMessage], None],
        model: str = "",
        path: Path | None = None,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._send = send
        self.model = model
        self._path = path
        self._clock_ns = clock_ns
        self._known = _read(path)
        self._current: tuple[str, int] | None = None

    def __call__(self, stage: str, detail: str = "") -> None:
        self._end()
        key = " ".join((self.model, stage, detail))
        self._current = key, self._clock_ns()
        self._send(Progress(stage, detail, self._known.get(key)))

    def done(self) -> None:
        """The last stage has ended well; keep the durations of all."""
        self._end()
        if self._path is not None:
            keep_measured(self._path, self._known, "the time of each stage")

    def failed(self) -> None:
        """The stage ended with an error, so its duration says nothing."""
        self._current = None

    def _end(self) -> None:
        if self._current is None:
            return
        (key, since_ns), self._current = self._current, None
        self._known.pop(key, None)
        self._known[key] = self._clock_ns() - since_ns
        while len(self._known) > _MOST_KEPT:
            del self._known[next(iter(self._known))]


def _read(path: Path | None) -> dict[str, int]:
    """ns by stage, the latest last."""
    try:
        return kept_measured(path, dict[str, int]) if path else {}
    except (OSError, ValueError):
        return {}
