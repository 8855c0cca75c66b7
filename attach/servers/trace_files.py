"""The traces that a server writes into a folder during a window."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.errors import InputError, MissingRequirement, TraceError
from decodescope.analyzer.readers.byte_source import open_source

_ENDINGS = (".json", ".json.gz")
_POLL_S = 0.25

State = tuple[int, int]


@dataclass(slots=True)
class TraceFolder:
    """The traces in `path` that were not there when this was made and that `wanted` takes, by their
    names.

    Raises:
        InputError: the folder cannot be read.
    """

    path: Path
    wanted: Callable[[str], bool]
    _before: dict[str, State] = field(init=False)
    _whole: dict[str, State] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self._states()

    def has_new(self) -> bool:
        """Whether the server has begun to write a trace."""
        return bool(self._new())

    def wait(self, count: int, limit_s: float) -> tuple[Path, ...]:
        """The new traces, by name, once there are `count`, all are whole and none has changed since
        the last look; those that are whole after `limit_s`.

        Raises:
            MissingRequirement: no trace is whole by then.
        """
        end_s = time.monotonic() + limit_s
        last: dict[str, State] = {}
        while True:
            new = self._new()
            if new == last and len(new) >= count and all(map(self._is_whole, new, new.values())):
                break
            if time.monotonic() >= end_s:
                new = {name: state for name, state in new.items() if self._is_whole(name, state)}
                break
            last = new
            time.sleep(_POLL_S)
        if not new:
            raise self._missing(limit_s, last)
        return tuple(self.path / name for name in sorted(new))

    def _missing(self, limit_s: float, begun: dict[str, State]) -> MissingRequirement:
        if begun:
            return MissingRequirement(
                f"{self.path / min(begun)}: is not whole {limit_s:g} s after the window; see "
                "whether the server's disk is full, or take a shorter window"
            )
        return MissingRequirement(
            f"{self.path}: no trace came within {limit_s:g} s after the window; name the folder "
            "that the server writes to with --trace-dir, and see that requests run"
        )

    def _new(self) -> dict[str, State]:
        return {
            name: state for name, state in self._states().items() if self._before.get(name) != state
        }

    def _states(self) -> dict[str, State]:
        states = {}
        try:
            for entry in self.path.iterdir():
                if entry.name.endswith(_ENDINGS) and self.wanted(entry.name) and entry.is_file():
                    status = entry.stat()
                    states[entry.name] = (status.st_size, status.st_mtime_ns)
        except FileNotFoundError:
            # The folder is not there yet, or a file has gone since.
            return states
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be read ({error.strerror}); name the folder with the "
                "server's traces with --trace-dir"
            ) from None
        return states

    def _is_whole(self, name: str, state: State) -> bool:
        if self._whole.get(name) != state and _is_whole(self.path / name):
            self._whole[name] = state
        return self._whole.get(name) == state


def _is_whole(path: Path) -> bool:
    """Whether the file ends as JSON of a trace does, and its compression, if any, as it should."""
    last = b""
    try:
        with open_source(str(path)) as source:
            while piece := source.read():
                last = (last + piece)[-64:]
    except TraceError:
        return False
    return not source.truncated and last.rstrip().endswith((b"}", b"]"))
