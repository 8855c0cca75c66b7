"""The link to our own worker process: its configuration, its folder, its protocol's version."""

import asyncio
import sys
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.machine.meters import METERS_INTERVAL_S, open_meters
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    ChangeSettings,
    Hello,
    Meters,
    Settings,
    State,
    Stats,
    WorkerConfig,
    WorkerMessage,
    settings_of,
    with_settings,
)
from decodescope.tui.link.base import Link, LinkEvent, LinkMessage, WorkerDied
from decodescope.tui.link.process import ChildProcess

CONFIG_NAME = "worker.json"
LOG_NAME = "worker.log"


class WorkerLink(Link):
    """A link to `python -m decodescope.variants.live.worker`, started by `start()`.

    An empty `config.trace_dir` means a temporary folder that `close()` removes. `argv` replaces
    the interpreter and module; the socket's file descriptor and the configuration's file are
    appended.
    """

    def __init__(self, config: WorkerConfig, argv: tuple[str, ...] | None = None) -> None:
        self._config = config
        self._argv = argv or (sys.executable, "-u", "-m", "decodescope.variants.live.worker")
        self._folder: WorkFolder | None = None
        self._child = ChildProcess("the worker", WorkerMessage, latest=(Stats, Meters))
        self._busy = False
        self._worthless = True
        self._dead = True
        self._restarting = False
        self._metering: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid

    @property
    def settings(self) -> Settings:
        return settings_of(self._config)

    async def start(self) -> None:
        """Start the worker, unless `spawn` did; one that cannot be started is a dead one, for which
        a fatal `Failure` is received."""
        if self._child.pid is None:
            try:
                self.spawn()
            except MissingRequirement as error:
                self._child.refuse(str(error))
                return
        self._child.attach()

    def spawn(self) -> None:
        """Start the worker before there is an event loop: it imports torch while the app is
        imported.

        Raises:
            MissingRequirement: the process cannot be started, or its folder cannot be created.
        """
        self._busy, self._worthless, self._dead = False, True, True
        try:
            trace_dir = self._trace_dir()
            config = msgspec.structs.replace(self._config, trace_dir=str(trace_dir))
            # In a file, since a prompt can be longer than an argument, and need not be seen in ps.
            path = trace_dir / CONFIG_NAME
            path.write_bytes(msgspec.json.encode(config))
        except OSError as error:
            raise MissingRequirement(f"the worker cannot be started: {error}") from error
        self._child.spawn(self._argv, str(path), trace_dir / LOG_NAME)
        self._dead = False

    async def receive(self) -> LinkEvent | None:
        while (event := await self._child.receive()) is not None:
            if self._restarting:
                continue
            match event:
                case Hello(protocol=protocol) if protocol != PROTOCOL_VERSION:
                    self._child.refuse(
                        f"worker speaks protocol {protocol}, this app {PROTOCOL_VERSION}:"
                        " install the same decodescope on both sides"
                    )
                    continue
                case Hello(gpu_uuid=uuid, settings=settings):
                    self._worthless = False
                    if settings is not None:
                        self._config = with_settings(self._config, settings)
                    if uuid is not None and self._metering is None:
                        self._metering = asyncio.create_task(self._read_meters(uuid))
                case WorkerDied():
                    self._dead = True
                    self._stop_metering()
                case State(state=state):
                    self._busy = state in ("loading", "building")
            return event  # type: ignore[return-value]
        return None

    async def send(self, message: LinkMessage) -> None:
        if isinstance(message, ChangeSettings) and self._dead:
            self._config = with_settings(self._config, message.settings)
        await self._child.send(message)

    def printed(self) -> list[str]:
        return self._child.printed()

    async def end(self) -> None:
        self._stop_metering()
        await self._child.end()

    async def restart(self) -> None:
        self._restarting = True
        self._stop_metering()
        try:
            await self._child.end(self._busy, self._worthless)
        finally:
            self._restarting = False
        await self.start()

    async def close(self) -> None:
        self._stop_metering()
        await self._child.close(self._busy, self._worthless)
        await asyncio.to_thread(self.discard)

    def discard(self) -> None:
        """Do as `close` does, at once and without an event loop: for an app that never ran."""
        self._child.kill()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    async def _read_meters(self, uuid: str) -> None:
        meters = await asyncio.to_thread(open_meters, uuid)
        if meters is None:
            return
        try:
            while True:
                reading = await asyncio.to_thread(meters.read)
                if reading is not None:
                    self._child.deliver(reading)
                await asyncio.sleep(METERS_INTERVAL_S)
        finally:
            meters.close()

    def _stop_metering(self) -> None:
        if self._metering is not None:
            self._metering.cancel()
            self._metering = None

    def _trace_dir(self) -> Path:
        if self._config.trace_dir:
            path = Path(self._config.trace_dir)
            path.mkdir(parents=True, exist_ok=True)
            return path
        self._folder = self._folder or WorkFolder()
        return self._folder.path
