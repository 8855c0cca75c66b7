"""The link to a worker process of our own: spawn, read, write, notice its death, end it."""

from decodescope.analyzer.protocol import AppMessage, WorkerConfig
from decodescope.tui.link import LOG_TAIL_LINES, LinkEvent


class WorkerLink:
    """A `Link` to `python -m decodescope.variants.worker`, started by `start()`.

    An empty `config.trace_dir` means a temporary folder that `close()` removes.
    """

    def __init__(self, config: WorkerConfig, argv: tuple[str, ...] | None = None) -> None:
        self._config = config
        self._argv = argv

    @property
    def exit_code(self) -> int | None:
        raise NotImplementedError

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
        raise NotImplementedError
