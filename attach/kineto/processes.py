"""The processes of this machine, as `/proc` describes them."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_LIBTORCH = re.compile(rb"/libtorch(?:_cpu|_python)?\.so")
# A process in other namespaces neither reaches a socket here nor writes files here.
_NAMESPACES = ("net", "mnt", "pid")
_MAX_COMMAND_CHARACTERS = 60
_DAEMON_VARIABLE = "KINETO_USE_DAEMON"
# The inode of a socket that libkineto has for its questions to a daemon, in /proc/net/unix.
_CLIENT_SOCKET = re.compile(rb" (\d+) [@/]\S*dynoconfigclient")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this user, read once. `started_ticks` tells it from a later one with its id;
    `has_door` says whether libkineto in it asks a daemon for windows."""

    pid: int
    parent: int
    started_ticks: int
    command: str
    environment: Mapping[str, str]
    loads_torch: bool
    has_door: bool
    is_here: bool

    @property
    def rank(self) -> int | None:
        """The rank that a launcher such as torchrun gave this process."""
        text = self.environment.get("RANK") or self.environment.get("LOCAL_RANK") or ""
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def title(self) -> str:
        return f"process {self.pid} ({self.command})"


def owner(pid: int, proc: Path = PROC) -> int | None:
    """The user id that a process has; None if it does not run."""
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE)
    return None if match is None else int(match[1])


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """A process of this user; None if it does not run or cannot be read."""
    folder = proc / str(pid)
    try:
        stat = _stat(folder)
        environment = (folder / "environ").read_bytes()
        maps = (folder / "maps").read_bytes()
        command = (folder / "cmdline").read_bytes()
        namespaces = [os.readlink(folder / "ns" / name) for name in _NAMESPACES]
        own = [os.readlink(proc / "self" / "ns" / name) for name in _NAMESPACES]
    except OSError:
        return None
    if stat is None:
        return None
    variables, loads_torch = _variables(environment), _LIBTORCH.search(maps) is not None
    return Process(
        pid,
        *stat,
        command=_shortened(command),
        environment=variables,
        loads_torch=loads_torch,
        has_door=loads_torch and (_DAEMON_VARIABLE in variables or _has_client_socket(folder)),
        is_here=namespaces == own,
    )


def running_processes(proc: Path = PROC) -> Iterator[Process]:
    """All processes of this user, in order of their ids."""
    pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())
    for pid in pids:
        if owner(pid, proc) == os.geteuid():
            process = read_process(pid, proc)
            if process is not None:
                yield process


def has_ended(process: Process, proc: Path = PROC) -> bool:
    """Whether a process has ended since it was read."""
    try:
        stat = _stat(proc / str(process.pid))
    except OSError:
        return True
    return stat is None or stat[1] != process.started_ticks


def _stat(folder: Path) -> tuple[int, int] | None:
    """The parent's id, and when the process started; None of a zombie (proc(5))."""
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def _has_client_socket(folder: Path) -> bool:
    """Whether a process has libkineto's socket: a program may set the variable itself before it
    imports torch, and `environ` has only those of its start."""
    try:
        inodes = _CLIENT_SOCKET.findall((folder / "net/unix").read_bytes())
        held = {os.readlink(file) for file in (folder / "fd").iterdir()}
    except OSError:
        return False
    return any(f"socket:[{inode.decode()}]" in held for inode in inodes)


def _variables(environment: bytes) -> dict[str, str]:
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, found, value in pairs if found}


def _shortened(command: bytes) -> str:
    """The program and its script or module, without folders: `python serve.py`, `python -m vllm`,
    `python -c`."""
    program, *arguments = (os.fsdecode(part) for part in command.rstrip(b"\0").split(b"\0"))
    shown = [os.path.basename(program)]
    for place, argument in enumerate(arguments):
        if argument in ("-c", "-m"):
            shown += (
                [argument, *arguments[place + 1 : place + 2]] if argument == "-m" else [argument]
            )
            break
        if argument and not argument.startswith("-"):
            shown.append(os.path.basename(argument))
            break
    return " ".join(shown)[:_MAX_COMMAND_CHARACTERS]
