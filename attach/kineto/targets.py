"""Which processes a user means: the ranks of a job, or all that can be attached to."""

import os
import pwd
from collections.abc import Iterable, Sequence
from pathlib import Path

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.attach.kineto.processes import (
    PROC,
    Process,
    owner,
    read_process,
    running_processes,
)

# Ranks of one launcher with the same values are one job.
_JOB_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")


def job_processes(pids: Iterable[int], proc: Path = PROC) -> tuple[Process, ...]:
    """The processes `pids`, in order of rank. The id of a rank stands for all ranks of its job, and
    that of a launcher for all that the launcher started.

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
    """All processes of this user that can be attached to, in order of rank; of a launcher only the
    ranks.

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
    return tuple(sorted(processes, key=lambda process: (process.rank or 0, process.pid)))


def _user_name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"
