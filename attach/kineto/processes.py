"""The processes of this machine, as `/proc` describes them, and those of them that a user means."""

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.text.numbers import whole_number

PROC = Path("/proc")
_LIBTORCH = re.compile(rb"/libtorch(?:_cpu|_python)?\.so")
# Ranks of one launcher with the same values are one job.
_JOB_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
# A process in other namespaces neither reaches a socket here nor writes files here.
_NAMESPACES = ("net", "mnt", "pid")
_MAX_COMMAND_CHARACTERS = 60
_DAEMON_VARIABLE = "KINETO_USE_DAEMON"
# The inode of a socket that libkineto has for its questions to a daemon, in /proc/net/unix.
_CLIENT_SOCKET = re.compile(rb" (\d+) [@/]\S*dynoconfigclient")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this user, read once. `started_ticks` tells it from a later one with its id;
    relative paths in its `environment` begin at its working `folder`; `has_door` says whether
    libkineto in it asks a daemon for windows."""

    pid: int
    parent: int
    started_ticks: int
    command: str
    environment: Mapping[str, str]
    folder: str
    loads_torch: bool
    has_door: bool
    is_here: bool

    @property
    def rank(self) -> int | None:
        """The rank that a launcher such as torchrun gave this process."""
        text = self.environment.get("RANK") or self.environment.get("LOCAL_RANK") or ""
        return whole_number(text)

    @property
    def title(self) -> str:
        return f"process {self.pid} ({self.command})"


def owner(pid: int, proc: Path = PROC) -> int | None:
    """The user id that a process has; None if it does not run."""
    return _status_number(pid, r"^Uid:\s+\d+\s+(\d+)", proc)


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """A process of this user; None if it does not run or cannot be read."""
    folder = proc / str(pid)
    try:
        stat = _stat(folder)
        environment = (folder / "environ").read_bytes()
        maps = (folder / "maps").read_bytes()
        command = (folder / "cmdline").read_bytes()
        working_folder = os.readlink(folder / "cwd")
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
        folder=working_folder,
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


def job_processes(pids: Iterable[int], proc: Path = PROC) -> tuple[Process, ...]:
    """The processes `pids`, job by job and in order of rank. The id of a rank stands for all ranks
    of its job, and that of a launcher for all that the launcher started.

    Raises:
        InputError: a process does not run, is another user's, or has not loaded PyTorch.
        MissingRequirement: a process runs without `KINETO_USE_DAEMON`, or in a container.
    """
    found: dict[int, Process] = {}
    every: Sequence[Process] = ()
    for pid in pids:
        process = _existing(pid, proc)
        every = every or tuple(running_processes(proc))
        ranks = _ranks_below(process, every) or _ranks_beside(process, every)
        for rank in ranks or (process,):
            _require_door(rank)
            found[rank.pid] = rank
    return _in_order(found.values())


def all_processes(proc: Path = PROC) -> tuple[Process, ...]:
    """All processes of this user that can be attached to, ordered as by `job_processes`; of a
    launcher only the ranks.

    Raises:
        MissingRequirement: there is none.
    """
    every = tuple(running_processes(proc))
    attachable = [process for process in every if process.has_door and process.is_here]
    workers = [process for process in attachable if not _ranks_below(process, every)]
    if not workers:
        raise MissingRequirement(
            "attach --all: no PyTorch process of this user runs with KINETO_USE_DAEMON=1; "
            "set that variable and start the process again"
        )
    return _in_order(workers)


def _existing(pid: int, proc: Path) -> Process:
    user = owner(pid, proc)
    if user is None:
        raise InputError(f"process {pid}: does not run; give the id of a process that does")
    if user != os.geteuid():
        raise InputError(
            f"process {pid}: belongs to {_user_name(user)}, and only its own user may attach; "
            "run decodescope as that user"
        )
    # /proc has a folder for a thread too, which it does not list; htop shows the ids of threads.
    group = _status_number(pid, r"^Tgid:\s+(\d+)", proc)
    if group not in (None, pid):
        raise InputError(f"{pid}: is a thread of process {group}; give {group}")
    process = read_process(pid, proc)
    if process is None:
        raise InputError(
            f"process {pid}: has ended, or the system protects it; give the id of another process"
        )
    return process


def _require_door(process: Process) -> None:
    if not process.loads_torch:
        raise InputError(
            f"{process.title}: has not loaded PyTorch; give the id of the process that decodes, "
            "after it imported torch"
        )
    if not process.has_door:
        raise MissingRequirement(
            f"{process.title}: runs without KINETO_USE_DAEMON=1, so no window can be opened "
            "in it; set that variable and start the process again"
        )
    if not process.is_here:
        raise MissingRequirement(
            f"{process.title}: runs in another container; run decodescope in that one"
        )


def _ranks_below(launcher: Process, every: Sequence[Process]) -> tuple[Process, ...]:
    """The ranks that a launcher, itself no rank, started directly."""
    if launcher.rank is not None:
        return ()
    children = (process for process in every if process.parent == launcher.pid)
    return tuple(child for child in children if child.rank is not None and child.loads_torch)


def _ranks_beside(process: Process, every: Sequence[Process]) -> tuple[Process, ...]:
    """The ranks of the job of which `process` is one. A child of a rank, such as the worker of a
    data loader, has the environment of its parent and is none."""
    if process.rank is None:
        return ()
    ranks = {other.pid: other for other in every if other.rank is not None and other.loads_torch}
    if process.parent in ranks:
        return ()
    return tuple(
        other
        for other in ranks.values()
        if other.parent == process.parent and _job(other) == _job(process)
    )


def _job(process: Process) -> tuple[str | None, ...]:
    return tuple(process.environment.get(name) for name in _JOB_VARIABLES)


def _in_order(processes: Iterable[Process]) -> tuple[Process, ...]:
    """Job by job, each in order of rank; those without a job come first."""

    def place(process: Process) -> tuple[list[str], int, int]:
        return [name or "" for name in _job(process)], process.rank or 0, process.pid

    return tuple(sorted(processes, key=place))


def _user_name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"


def _status_number(pid: int, pattern: str, proc: Path) -> int | None:
    """The number in a line of a process's `status`; None if it does not run."""
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(pattern, status, re.MULTILINE)
    return None if match is None else int(match[1])


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
    parts = command.rstrip(b"\0").split(b"\0")
    # The text is also in JSON, which is UTF-8; a command line need not be.
    program, *arguments = (part.decode(errors="backslashreplace") for part in parts)
    shown = [os.path.basename(program)]
    for place, argument in enumerate(arguments):
        if argument in ("-c", "-m"):
            shown += arguments[place : place + (2 if argument == "-m" else 1)]
            break
        if argument and not argument.startswith("-"):
            shown.append(os.path.basename(argument))
            break
    return " ".join(shown)[:_MAX_COMMAND_CHARACTERS]
