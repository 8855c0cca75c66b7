"""Starts the processes that need torch as forks of one that has imported it.

Importing torch and a model of transformers takes 6 s of CPU time in each process. With `install`,
`subprocess.Popen` of a command in `needs_torch` asks a server for a fork that becomes the command:
with its arguments, environment, folder, files and session, and as a child of the process that
asked. All else that Popen starts is started as ever. `python -m tests.helpers.preloaded FD` is the
server.
"""

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Of Python, which a fork obeys: unbuffered streams, and no import from the folder it is in.
_FLAGS = ("-u", "-P")
# `children` does not count servers.
NAME = "forkserver"
_COMMANDS = {
    "decodescope": ("run", "compare", "tune", "live", "variants"),
    "benchmarks": ("compare-variants", "live-overhead", "revisions"),
    "tools.ways": ("run",),
}
_MODULES = (
    "pytest",
    "decodescope.variants.live.worker",
    "decodescope.variants.comparing.live_comparison",
    "decodescope.variants.comparing.job_worker",
    "decodescope.variants.parallel.launcher",
    "tests.fuzzing.faulty",
    "tests.helpers.gpu_code",
)
# Imports look at these; a process with others of them is started as ever.
_STEERING = (
    "CUDA",
    "HF_",
    "HOME",
    "KINETO",
    "LD_",
    "OMP",
    "PYTORCH",
    "TORCH",
    "TRANSFORMERS",
    "TRITON",
)
# torch sets these itself: the first in a test's process and again in each fork, the others for the
# ranks that its launcher starts, which look at them when they meet.
_NOT_STEERING = ("TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
_PRELOADED = (
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
)
_FIRST_FREE_FD = 200
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36
_MESSAGE_BYTES = 1 << 20
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Command:
    """What a fork becomes: `python -m module`, or `-c` with that code. Its files are sent along: 0,
    1, 2 and those of `fds`, in this order."""

    option: str
    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    fds: list[int]
    flags: list[str]
    new_session: bool


def needs_torch(arguments: Sequence[str]) -> bool:
    """Whether a command of Python, without the interpreter, imports torch soon."""
    words = [word for word in arguments if word not in _FLAGS]
    if words[:1] not in (["-m"], ["-c"]) or len(words) < 2:
        return False
    command = words[2] if len(words) > 2 else ""
    if words[0] == "-c":
        return words[1].startswith("import torch") or command == "run"
    return words[1] in _MODULES or command in _COMMANDS.get(words[1], ())


class ForkServer:
    """The server's end of a process that asks for forks; it is started with the first one."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._socket = connection
        self._started_with = steering(os.environ) if connection else None

    def serves(
        self, words: Sequence[str], options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> bool:
        """Whether a fork can become the command."""
        plain = all(not options[name] for name in ("preexec_fn", "shell", "gid", "uid", "gids"))
        return (
            plain
            and options["process_group"] in (None, -1)
            and words[:1] == [sys.executable]
            and needs_torch(words[1:])
            and steering(environment) == self._steering
        )

    @property
    def _steering(self) -> dict[str, str]:
        """The variables that the server has, or would have if it were started now."""
        return steering(os.environ) if self._started_with is None else self._started_with

    def fork(self, command: Command, files: Sequence[int]) -> int:
        """The process id of a new child of this process."""
        connection = self._connection()
        # The fork is an orphan; the nearest ancestor that adopts orphans becomes its parent.
        _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            send(connection, json.dumps(asdict(command)).encode(), files)
            answer, _ = receive(connection)
        finally:
            _libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return int(answer)

    def _connection(self) -> socket.socket:
        if self._socket is None:
            # Importing tests may have set some: those of the kernels turn the interpreter on.
            self._started_with = steering(os.environ)
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                _start(
                    [sys.executable, "-m", __name__, str(other.fileno())],
                    cwd=ROOT,
                    pass_fds=(other.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        return self._socket


def steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that imports look at."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_STEERING) and not name.startswith(_NOT_STEERING)
    }


def _start(command: list[str], **options: Any) -> None:
    """Start a process that ends by itself; nobody waits for it."""
    process = subprocess.Popen(command, **options)
    process.returncode = 0


def send(connection: socket.socket, data: bytes, files: Sequence[int] = ()) -> None:
    """One message, with open files."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([data], [rights] if files else [])


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One message and its files; empty if the other end is closed."""
    data, ancillary, _, _ = connection.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(64 * 4))
    files = array.array("i")
    for _, _, rights in ancillary:
        files.frombytes(rights[: len(rights) - len(rights) % files.itemsize])
    return data, list(files)


def install(server: ForkServer) -> None:
    """Let `subprocess.Popen` of this process ask `server`."""
    ordinary = subprocess.Popen._execute_child
    names = ordinary.__code__.co_varnames[1 : ordinary.__code__.co_argcount]

    def execute(self: Any, *values: Any) -> None:
        options = dict(zip(names, values, strict=True))
        arguments = options["args"]
        words = list(map(os.fspath, arguments)) if isinstance(arguments, (list, tuple)) else []
        environment = dict(os.environ if options["env"] is None else options["env"])
        if not server.serves(words, options, environment):
            ordinary(self, *values)
            return
        options_end = next(place for place, word in enumerate(words) if word in ("-m", "-c"))
        option, *rest = words[options_end:]
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        given = (options[name] for name in ("p2cread", "c2pwrite", "errwrite"))
        standard = [fd if file == -1 else file for fd, file in enumerate(given)]
        fds = list(options["pass_fds"])
        command = Command(
            option=option,
            module=rest[0],
            arguments=rest[1:],
            environment=environment,
            folder=os.fspath(options["cwd"] or os.getcwd()),
            fds=fds,
            flags=words[1:options_end],
            new_session=bool(options["start_new_session"]),
        )
        self.pid = server.fork(command, [*standard, *fds])
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in ends))

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def serve(connection: socket.socket) -> tuple[Command, list[int]]:
    """Fork for each message; returns in each fork, with its command and files. The server ends."""
    _libc.prctl(_SET_NAME, NAME.encode(), 0, 0, 0)
    # What a terminal sends to a group is for the commands.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, files = receive(connection)
        if not data:
            os._exit(0)
        pid_end, fork_end = socket.socketpair()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            _libc.prctl(_SET_NAME, b"python", 0, 0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            command = Command(**json.loads(data))
            if command.new_session:
                os.setsid()
            # Who knows the process id may signal its session, or look for its name.
            fork_end.send(str(os.getpid()).encode())
            # A worker is killed with its parent: not with the one that it has until then.
            fork_end.recv(1)
            for end in (connection, pid_end, fork_end):
                end.close()
            return command, files
        # The fork has its new parent once this has ended.
        os.waitpid(between, 0)
        pid_end.send(b".")
        send(connection, pid_end.recv(64))
        for file in (pid_end, fork_end):
            file.close()
        for fd in files:
            os.close(fd)


def become(command: Command, files: list[int]) -> None:
    """Take over everything of the command but its module."""
    import fcntl

    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, _FIRST_FREE_FD) for file in files]
    for file in files:
        os.close(file)
    for file, fd in zip(moved, (0, 1, 2, *command.fds), strict=True):
        os.dup2(file, fd, inheritable=True)
        os.close(file)
    os.environ.clear()
    os.environ.update(command.environment)
    os.chdir(command.folder)
    # Found again, by the new environment.
    tempfile.tempdir = None
    for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.reconfigure(  # type: ignore[union-attr]
            line_buffering=fd == 2 or os.isatty(fd), write_through="-u" in command.flags
        )
    paths = filter(None, command.environment.get("PYTHONPATH", "").split(os.pathsep))
    folder = [] if "-P" in command.flags else [command.folder]
    sys.path[:] = [*folder, *paths, *_OWN_PATHS]
    name = "-c" if command.option == "-c" else command.module
    sys.argv[:] = [name, *command.arguments]
    importlib.invalidate_caches()


def nested(command: Command) -> ForkServer:
    """A server for the processes that the command starts; it is a fork as well."""
    own_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        server_end.close()
        return ForkServer(own_end)
    own_end.close()
    with open(os.devnull, "r+b") as nothing:
        for fd in (0, 1, 2, *command.fds):
            os.dup2(nothing.fileno(), fd)
    return run(server_end)


def run(connection: socket.socket) -> Any:
    """Serve; in a fork, run its command as `python -m` or `-c` does."""
    command, files = serve(connection)
    become(command, files)
    install(nested(command))
    code: Any = None
    try:
        if command.option == "-c":
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(command.module, "<string>", "exec"), vars(main))
        else:
            runpy.run_module(command.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        # Frozen objects would count as leaked at the end.
        gc.unfreeze()
        raise
    end_with(code or 0)


def end_with(code: Any) -> Any:
    """As the interpreter ends, but without a look at every object, which takes a second."""
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError):
            stream.flush()
    os._exit(code & 0xFF)


_INHERITED = os.environ.get("PYTHONPATH", "").split(os.pathsep)
_OWN_PATHS = [path for path in sys.path[1:] if path not in _INHERITED]

if __name__ == "__main__":
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    run(socket.socket(fileno=int(sys.argv[1])))
