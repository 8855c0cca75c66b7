"""A recording played back as if its worker were running."""

from decodescope.analyzer.protocol import AppMessage
from decodescope.tui.link import LOG_TAIL_LINES, LinkEvent


class ReplayLink:
    """A `Link` that plays the recording at `path` with its own timing, `speed` times as fast.

    Only Pause and Resume have an effect. After the last frame comes `Bye("end of recording")`,
    then nothing until `restart()` or `close()`.
    """

    def __init__(self, path: str, speed: float = 1.0) -> None:
        self._path = path
        self._speed = speed

    @property
    def exit_code(self) -> int | None:
        return None

    async def start(self) -> None:
        raise NotImplementedError

    async def receive(self) -> LinkEvent | None:
        raise NotImplementedError

    async def send(self, message: AppMessage) -> None:
        raise NotImplementedError

    async def restart(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> list[str]:
        return []
