"""The link to our own worker process: its configuration, its folder, its protocol's version."""

import asyncio
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.machine.meters import METERS_INTERVAL_S, open_meters
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    CaptureTrace,
    ChangeSettings,
    Hello,
    Meters,
    Settings,
    State,
    Stats,
    TraceReady,
    WorkerConfig,
    WorkerMessage,
    settings_of,
    with_settings,
)
from decodescope.tui.link.base import Link, LinkEvent, LinkMessage, WorkerDied
from decodescope.tui.link.process import ProcessLink

CONFIG_NAME = "worker.json"
LOG_NAME = "worker.log"


class WorkerLink(ProcessLink, Link):
    """A link to `python -m decodescope.variants.live.worker`, started by `start()`.

    An empty `config.trace_dir` means a temporary folder that `close()` removes.
    """

    NAME = "the worker"
    MODULE = "decodescope.variants.live.worker"
    MESSAGES = WorkerMessage
    LATEST = (Stats, Meters)

    def __init__(self, config: WorkerConfig, argv: tuple[str, ...] | None = None) -> None:
        super().__init__(argv)
        self._config = config
        self._restarting = False
        # A window that nobody asked for is shown, but not written to the user's folder.
        self._windows_asked = 0
        self._metering: asyncio.Task[None] | None = None

    @property
    def settings(self) -> Settings:
        return settings_of(self._config)

    async def start(self) -> None:
        """Start the worker, unless `spawn` did. If that fails, a fatal `Failure` is received."""
        if self.pid is None:
            try:
                self.spawn()
            except MissingRequirement as error:
                self.refuse(str(error))
                return
        await self.attach()

    def _files(self) -> tuple[str, Path]:
        self._busy, self._worthless, self._windows_asked = False, True, 0
        folder = Path(self._config.trace_dir) if self._config.trace_dir else self._temporary()
        folder.mkdir(parents=True, exist_ok=True)
        config = msgspec.structs.replace(self._config, trace_dir=str(folder))
        # In a file, since a prompt can be longer than an argument, and need not be seen in ps.
        path = folder / CONFIG_NAME
        path.write_bytes(msgspec.json.encode(config))
        return str(path), folder / LOG_NAME

    async def receive(self) -> LinkEvent | None:
        while (event := await super().receive()) is not None:
            if self._restarting:
                continue
            match event:
                case Hello(protocol=protocol) if protocol != PROTOCOL_VERSION:
                    self.refuse(
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
                    self._stop_metering()
                case State(state=state):
                    self._busy = state in ("loading", "building")
                case TraceReady(requested=True) if not self._windows_asked:
                    event = msgspec.structs.replace(event, requested=False)
                case TraceReady(requested=True):
                    self._windows_asked -= 1
            return event  # type: ignore[return-value]
        return None

    async def send(self, message: LinkMessage) -> None:
        if isinstance(message, ChangeSettings) and (self.pid is None or self._died):
            self._config = with_settings(self._config, message.settings)
        self._windows_asked += isinstance(message, CaptureTrace)
        await self._send(message)

    async def restart(self) -> None:
        self._restarting = True
        try:
            await self.end()
        finally:
            self._restarting = False
        await self.start()

    async def end(self) -> None:
        self._stop_metering()
        await super().end()

    async def _read_meters(self, uuid: str) -> None:
        meters = await asyncio.to_thread(open_meters, uuid)
        if meters is None:
            return
        try:
            while True:
                reading = await asyncio.to_thread(meters.read)
                if reading is not None:
                    self.deliver(reading)
                await asyncio.sleep(METERS_INTERVAL_S)
        finally:
            meters.close()

    def _stop_metering(self) -> None:
        if self._metering is not None:
            self._metering.cancel()
            self._metering = None
