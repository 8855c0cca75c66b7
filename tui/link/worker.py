"""The link to our own worker process: spawn it, read, write, notice its death, end it."""

import asyncio
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.protocol import (
    PROTOCOL_VERSION,
    AppMessage,
    Failure,
    FrameDecoder,
    Hello,
    Quit,
    Stats,
    WorkerConfig,
    WorkerMessage,
    encode_frame,
)
from decodescope.tui.link.base import Link, LinkEvent, WorkerDied

LOG_NAME = "worker.log"
_LOG_TAIL_LINES = 20
_RECEIVE_BYTES = 1 << 16
_LOG_TAIL_BYTES = 1 << 16
_EXIT_POLL_S = 0.5
_QUIT_GRACE_S = 3.0
_TERMINATE_GRACE_S = 1.0


class WorkerLink(Link):
    """A link to `python -m decodescope.variants.live.worker`, started by `start()`.

    An empty `config.trace_dir` means a temporary folder that `close()` removes. `argv` replaces
    the interpreter and module; the socket's file descriptor and the configuration are appended.
    The worker has its own session, so the terminal's Ctrl-C reaches only the app. The worker ends
    when the socket closes.
    """

    def __init__(self, config: WorkerConfig, argv: tuple[str, ...] | None = None) -> None:
        self._config = config
        self._argv = argv or (sys.executable, "-u", "-m", "decodescope.variants.live.worker")
        self._own_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(WorkerMessage)
        self._inbox: deque[LinkEvent] = deque()
        self._arrived = asyncio.Event()
        self._outgoing = bytearray()
        self._died = False
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, None before `start()` and after `close()`."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the worker.

        Raises:
            MissingRequirement: the process cannot be started, or its folder cannot be created.
        """
        ours, theirs = socket.socketpair()
        try:
            self._process = self._spawn(theirs)
        except OSError as error:
            ours.close()
            raise MissingRequirement(f"the worker cannot be started: {error}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._decoder = FrameDecoder(WorkerMessage)
        self._outgoing.clear()
        self._died = False
        asyncio.get_running_loop().add_reader(ours, self._on_readable)

    def _spawn(self, control: socket.socket) -> subprocess.Popen[bytes]:
        trace_dir = self._trace_dir()
        config = msgspec.structs.replace(self._config, trace_dir=str(trace_dir))
        with (trace_dir / LOG_NAME).open("ab") as log:
            return subprocess.Popen(
                [*self._argv, str(control.fileno()), msgspec.json.encode(config).decode()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(control.fileno(),),
                start_new_session=True,
            )

    async def receive(self) -> LinkEvent | None:
        while not self._closed:
            if self._inbox:
                return self._inbox.popleft()
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), _EXIT_POLL_S)
            except TimeoutError:
                self._notice_death()
        return None

    async def send(self, message: AppMessage) -> None:
        if self._socket is not None:
            self._outgoing += encode_frame(message)
            self._write()

    async def restart(self) -> None:
        await self._end_worker()
        self._inbox.clear()
        await self.start()

    async def close(self) -> None:
        self._closed = True
        self._arrived.set()
        await self._end_worker()
        if self._own_dir is not None:
            await asyncio.to_thread(shutil.rmtree, self._own_dir, ignore_errors=True)
            self._own_dir = None

    def _trace_dir(self) -> Path:
        if self._config.trace_dir:
            path = Path(self._config.trace_dir)
            path.mkdir(parents=True, exist_ok=True)
            return path
        if self._own_dir is None:
            self._own_dir = Path(tempfile.mkdtemp(prefix="decodescope-"))
        return self._own_dir

    def _on_readable(self) -> None:
        if not self._read():
            self._hang_up()
            self._notice_death()

    def _read(self) -> bool:
        """Read at most one buffer from the socket; False at its end."""
        assert self._socket is not None
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        try:
            for message in self._decoder.feed(data):
                self._take(message)
        except InputError as error:
            self._refuse(str(error))
        return bool(data)

    def _take(self, message: object) -> None:
        if isinstance(message, Hello) and message.protocol != PROTOCOL_VERSION:
            self._refuse(
                f"worker speaks protocol {message.protocol}, this app {PROTOCOL_VERSION}:"
                " install the same decodescope on both sides"
            )
        elif self._socket is not None:
            self._deliver(message)  # type: ignore[arg-type]

    def _deliver(self, event: LinkEvent) -> None:
        if isinstance(event, Stats):
            for index, waiting in enumerate(self._inbox):
                if isinstance(waiting, Stats):
                    del self._inbox[index]
                    break
        self._inbox.append(event)
        self._arrived.set()

    def _refuse(self, why: str) -> None:
        """Report that the other end cannot be understood, and end it."""
        self._deliver(Failure(message=why, exit_code=3, fatal=True))
        self._hang_up()
        if self._process is not None:
            self._process.terminate()

    def _hang_up(self) -> None:
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _notice_death(self) -> None:
        """Deliver `WorkerDied` once, after everything the worker sent."""
        if self._died or self._process is None or (code := self._process.poll()) is None:
            return
        self._died = True
        waiting = True
        while waiting and self._socket is not None:
            waiting = select.select([self._socket], [], [], 0)[0] != [] and self._read()
        self._hang_up()
        self._deliver(WorkerDied(code, self._log_tail()))

    def _log_tail(self) -> tuple[str, ...]:
        try:
            with (self._trace_dir() / LOG_NAME).open("rb") as log:
                log.seek(0, 2)
                log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ()
        return tuple(lines[-_LOG_TAIL_LINES:])

    def _write(self) -> None:
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        try:
            del self._outgoing[: self._socket.send(self._outgoing)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._outgoing.clear()
        if self._outgoing:
            loop.add_writer(self._socket, self._write)
        else:
            loop.remove_writer(self._socket)

    async def _end_worker(self) -> None:
        """Send Quit, then SIGTERM, then SIGKILL; returns when the process has ended."""
        process = self._process
        if process is None:
            return
        self._died = True
        await self.send(Quit())
        if not await _exited_within(process, _QUIT_GRACE_S):
            process.terminate()
            if not await _exited_within(process, _TERMINATE_GRACE_S):
                process.kill()
                await _exited_within(process, _QUIT_GRACE_S)
        self._hang_up()
        self._process = None


async def _exited_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        await asyncio.to_thread(process.wait, seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
