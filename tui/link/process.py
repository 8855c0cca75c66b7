"""A child process at the other end of a socket pair: its messages, its death, its end."""

import asyncio
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.messages import Failure, FrameDecoder, Quit, encode_frame
from decodescope.tui.link.base import WorkerDied

_LOG_TAIL_LINES = 20
_RECEIVE_BYTES = 1 << 14
# Ours sends a few messages a second.
_MOST_MESSAGES_PER_S = 1000
_FLOODED = f"{{}} sends over {_MOST_MESSAGES_PER_S:,} messages a second; the rest has to wait"
_EXIT_POLL_S = 0.5
# Together less than an app has for its end after a signal.
_QUIT_GRACE_S = 0.6
_TERMINATE_GRACE_S = 0.3
# The end of a stream that nobody else holds comes at once.
_REST_S = 0.5


class ProcessLink:
    """Frames of `analyzer.protocol` from and to one process at a time.

    Subclasses set `NAME`, which errors call it, the `MODULE` that it runs, and the union of its
    `MESSAGES`. Of messages of each type in `LATEST`, only the newest waits to be received.
    `quit_grace_s` is how long it may take to end by itself. `argv` replaces the interpreter and
    module; the socket's file descriptor and an argument are appended.

    The process has its own session, so the terminal's Ctrl-C reaches only the app. It is expected
    to end when the socket closes.
    """

    NAME: ClassVar[str]
    MODULE: ClassVar[str]
    MESSAGES: ClassVar[object]
    LATEST: ClassVar[tuple[type[Struct], ...]] = ()
    quit_grace_s = _QUIT_GRACE_S

    def __init__(self, argv: tuple[str, ...] | None = None) -> None:
        self._argv = argv or (sys.executable, "-P", "-u", "-m", self.MODULE)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(self.MESSAGES)
        self._inbox: deque[Struct] = deque()
        self._arrived = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._folder: WorkFolder | None = None
        self._tail: LogTail | None = None
        self._died = self._closed = False
        self._busy = self._worthless = False

    @property
    def pid(self) -> int | None:
        """The process id, None before a start and after `end()`."""
        return None if self._process is None else self._process.pid

    def spawn(self) -> None:
        """Start the process; what it prints is appended to its log. Needs no event loop.

        Raises:
            MissingRequirement: it cannot be started, or its files cannot be written.
        """
        try:
            argument, log = self._files()
            self._start(argument, log)
        except OSError as error:
            raise MissingRequirement(f"{self.NAME} cannot be started: {error}") from error

    def _files(self) -> tuple[str, Path]:
        """Write the files of the next process: its argument, and where its log is."""
        raise NotImplementedError

    def _temporary(self) -> Path:
        self._folder = self._folder or WorkFolder()
        return self._folder.path

    def _start(self, argument: str, log: Path) -> None:
        own_end, child_end = socket.socketpair()
        self._tail = self._tail or LogTail(log)
        self._tail.begin()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*self._argv, str(child_end.fileno()), argument],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(child_end.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            own_end.close()
            raise
        finally:
            child_end.close()
        self._socket = own_end
        self._decoder = FrameDecoder(self.MESSAGES)
        self._inbox.clear()
        self._died = False

    async def attach(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self._reading = asyncio.create_task(self._read(reader))

    def discard(self) -> None:
        """Do as `close` does, at once and without an event loop: for an app that never ran."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    async def receive(self) -> Struct | None:
        """The next message; `WorkerDied` after a process that ended by itself; None once closed."""
        while not self._closed:
            if self._inbox:
                return self._inbox.popleft()
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), _EXIT_POLL_S)
            await self._notice_death()
        return None

    async def _send(self, message: Struct) -> None:
        if self._writer is not None:
            self._writer.write(encode_frame(message))

    def printed(self) -> list[str]:
        return self._tail.lines() if self._tail is not None else []

    def refuse(self, why: str) -> None:
        """Deliver a fatal `Failure` instead of what waits, and end the process if there is one."""
        self._inbox.clear()
        self.deliver(Failure(message=why, exit_code=3, fatal=True))
        self._hang_up()
        if self._process is None:
            self.deliver(WorkerDied(3, ()))
        else:
            self._process.terminate()

    async def end(self) -> None:
        """End the process: Quit, then SIGTERM, then SIGKILL; returns when it has ended. What it
        said until then can still be received. It does not count as a death. A busy process would
        not read Quit; a worthless one has nothing to clean up."""
        process = self._process
        if process is None:
            return
        self._died = True
        await self._send(Quit())
        if self._busy or self._worthless or not await _exited_within(process, self.quit_grace_s):
            process.terminate()
            if self._worthless or not await _exited_within(process, _TERMINATE_GRACE_S):
                process.kill()
                await _exited_within(process, _QUIT_GRACE_S)
        await self._read_rest()
        self._process = None

    async def close(self) -> None:
        """End the process and remove its folder; a pending `receive` returns None."""
        self._closed = True
        self._arrived.set()
        await self.end()
        await asyncio.to_thread(self.discard)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Deliver what the process sends until it hangs up. What comes too fast waits there."""
        began_s, in_second, flooded = time.monotonic(), 0, False
        try:
            while data := await reader.read(_RECEIVE_BYTES):
                messages = self._decoder.feed(data)
                for message in messages:
                    self.deliver(message)  # type: ignore[arg-type]
                if (now_s := time.monotonic()) - began_s > 1:
                    began_s, in_second = now_s, 0
                in_second += len(messages)
                if in_second > _MOST_MESSAGES_PER_S:
                    if not flooded:
                        flooded = True
                        self.deliver(Failure(_FLOODED.format(self.NAME), 0, fatal=False))
                    await asyncio.sleep(began_s + 1 - now_s)
        except InputError as error:
            self.refuse(str(error))
        except OSError:
            pass
        self._hang_up()
        self._arrived.set()

    def deliver(self, event: Struct) -> None:
        """Let `event` be received as if the process had sent it."""
        if isinstance(event, self.LATEST):
            others = [waiting for waiting in self._inbox if type(waiting) is not type(event)]
            self._inbox = deque(others)
        self._inbox.append(event)
        self._arrived.set()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _notice_death(self) -> None:
        """Deliver `WorkerDied` once, after everything the process sent."""
        if self._died or self._process is None or (code := self._process.poll()) is None:
            return
        self._died = True
        await self._read_rest()
        last_lines = self._tail.last_lines(_LOG_TAIL_LINES) if self._tail is not None else ()
        self.deliver(WorkerDied(code, last_lines))

    async def _read_rest(self) -> None:
        """Read what a process that has ended sent; a child of it may hold its end open."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_REST_S)
            self._reading.cancel()
            self._reading = None
        self._hang_up()


async def _exited_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        await asyncio.to_thread(process.wait, seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


MOST_BYTES = 1 << 16


class LogTail:
    """Follows the file at `path` from its present end on; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.begin()
        self._at = self._began

    def begin(self) -> None:
        """Another process begins to write: the last lines are its own from here on."""
        self._began = self._path.stat().st_size if self._path.exists() else 0

    def lines(self) -> list[str]:
        """The whole lines that were appended since the last call, of the last `MOST_BYTES`. Of a
        line that was written over, as progress bars are, the last state."""
        start, data = self._read_from(self._at)
        whole, end, _ = data.rpartition(b"\n")
        cut = start > self._at
        self._at = start + len(whole) + len(end)
        lines = whole.decode(errors="replace").split("\n")[cut:] if end else []
        return [line.rstrip("\r").rpartition("\r")[2] for line in lines]

    def last_lines(self, count: int) -> tuple[str, ...]:
        return tuple(self._read_from(self._began)[1].decode(errors="replace").splitlines()[-count:])

    def _read_from(self, start: int) -> tuple[int, bytes]:
        """The bytes from `start` on, at most the last `MOST_BYTES`, and where they begin."""
        with suppress(OSError), self._path.open("rb") as file:
            start = max(start, file.seek(0, 2) - MOST_BYTES)
            file.seek(start)
            return start, file.read(MOST_BYTES)
        return start, b""
