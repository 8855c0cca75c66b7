"""A child process at the other end of a socket pair: its messages, its death, its end."""

import asyncio
import select
import socket
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.protocol.messages import Failure, FrameDecoder, Quit, encode_frame
from decodescope.tui.link.base import WorkerDied

_LOG_TAIL_LINES = 20
_RECEIVE_BYTES = 1 << 16
_EXIT_POLL_S = 0.5
_QUIT_GRACE_S = 3.0
_TERMINATE_GRACE_S = 1.0


class ChildProcess:
    """Frames of `analyzer.protocol` from and to one process at a time; `messages` is the union that
    it sends. `name` is what errors call it. Of messages of each type in `latest`, only the newest
    waits to be received. `quit_grace_s` is how long it may take to end by itself.

    The process has its own session, so the terminal's Ctrl-C reaches only the app. It is expected
    to end when the socket closes.
    """

    def __init__(
        self,
        name: str,
        messages: object,
        latest: tuple[type[Struct], ...] = (),
        quit_grace_s: float = _QUIT_GRACE_S,
    ) -> None:
        self._name = name
        self._messages = messages
        self._latest = latest
        self.quit_grace_s = quit_grace_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(messages)
        self._inbox: deque[Struct] = deque()
        self._arrived = asyncio.Event()
        self._outgoing = bytearray()
        self._tail: LogTail | None = None
        self._died = False
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, None before `start()` and after `end()`."""
        return None if self._process is None else self._process.pid

    async def start(self, argv: Sequence[str], argument: str, log: Path) -> None:
        """As `spawn`, then `attach`."""
        self.spawn(argv, argument, log)
        self.attach()

    def spawn(self, argv: Sequence[str], argument: str, log: Path) -> None:
        """Start `argv` with the socket's file descriptor and `argument` appended; what it prints is
        appended to `log`. Needs no event loop.

        Raises:
            MissingRequirement: the process cannot be started, or `log` cannot be written.
        """
        own_end, child_end = socket.socketpair()
        self._tail = self._tail or LogTail(log)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*argv, str(child_end.fileno()), argument],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(child_end.fileno(),),
                    start_new_session=True,
                )
        except OSError as error:
            own_end.close()
            raise MissingRequirement(f"{self._name} cannot be started: {error}") from error
        finally:
            child_end.close()
        own_end.setblocking(False)
        self._socket = own_end
        self._decoder = FrameDecoder(self._messages)
        self._inbox.clear()
        self._outgoing.clear()
        self._died = False

    def attach(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._on_readable)

    def kill(self) -> None:
        """End the process at once, without an event loop; nothing if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def receive(self) -> Struct | None:
        """The next message, `WorkerDied` after the last one of a process that ended by itself, or
        None once `close` was called."""
        while not self._closed:
            if self._inbox:
                return self._inbox.popleft()
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), _EXIT_POLL_S)
            except TimeoutError:
                self._notice_death()
        return None

    async def send(self, message: Struct) -> None:
        """Send `message`; silently dropped if there is no process."""
        if self._socket is not None:
            self._outgoing += encode_frame(message)
            self._write()

    def printed(self) -> list[str]:
        return self._tail.lines() if self._tail is not None else []

    def refuse(self, why: str) -> None:
        """Deliver a fatal `Failure` instead of what else waits, and end the process. Without one,
        it counts as dead."""
        self._inbox.clear()
        self.deliver(Failure(message=why, exit_code=3, fatal=True))
        self._hang_up()
        if self._process is None:
            self.deliver(WorkerDied(3, ()))
        else:
            self._process.terminate()

    async def end(self, busy: bool = False, worthless: bool = False) -> None:
        """Send Quit, then SIGTERM, then SIGKILL; returns when the process has ended. What it said
        until then can still be received. It does not count as a death.

        One that is `busy` would not read Quit; one that is `worthless` has nothing to clean up, and
        is killed at once.
        """
        process = self._process
        if process is None:
            return
        self._died = True
        await self.send(Quit())
        if busy or worthless or not await _exited_within(process, self.quit_grace_s):
            process.terminate()
            if worthless or not await _exited_within(process, _TERMINATE_GRACE_S):
                process.kill()
                await _exited_within(process, _QUIT_GRACE_S)
        self._drain()
        self._process = None

    async def close(self, busy: bool = False, worthless: bool = False) -> None:
        """As `end`; a pending `receive` returns None."""
        self._closed = True
        self._arrived.set()
        await self.end(busy, worthless)

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
                self.deliver(message)  # type: ignore[arg-type]
        except InputError as error:
            self.refuse(str(error))
        return bool(data)

    def deliver(self, event: Struct) -> None:
        """Let `event` be received as if the process had sent it."""
        if isinstance(event, self._latest):
            for index, waiting in enumerate(self._inbox):
                if type(waiting) is type(event):
                    del self._inbox[index]
                    break
        self._inbox.append(event)
        self._arrived.set()

    def _hang_up(self) -> None:
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _notice_death(self) -> None:
        """Deliver `WorkerDied` once, after everything the process sent."""
        if self._died or self._process is None or (code := self._process.poll()) is None:
            return
        self._died = True
        self._drain()
        last_lines = self._tail.last_lines(_LOG_TAIL_LINES) if self._tail is not None else ()
        self.deliver(WorkerDied(code, last_lines))

    def _drain(self) -> None:
        """Read what an ended process has sent, and hang up."""
        waiting = True
        while waiting and self._socket is not None:
            waiting = select.select([self._socket], [], [], 0)[0] != [] and self._read()
        self._hang_up()

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
        try:
            self._at = path.stat().st_size
        except OSError:
            self._at = 0

    def lines(self) -> list[str]:
        """The whole lines that were appended since the last call, of the last `MOST_BYTES`. Of a
        line that was written over, as progress bars are, the last state."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._at, size - MOST_BYTES)
                file.seek(start)
                whole, end, rest = file.read(max(size - start, 0)).rpartition(b"\n")
        except OSError:
            return []
        cut = start > self._at
        if not end:
            self._at = start
            return []
        self._at = size - len(rest)
        lines = whole.decode(errors="replace").split("\n")[cut:]
        return [line.rstrip("\r").rpartition("\r")[2] for line in lines]

    def last_lines(self, count: int) -> tuple[str, ...]:
        """The last lines of the file, of the last `MOST_BYTES`."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - MOST_BYTES))
                return tuple(file.read().decode(errors="replace").splitlines()[-count:])
        except OSError:
            return ()
