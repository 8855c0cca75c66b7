"""Windows of processes that ask libkineto's daemon for them."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.analyzer.text.numbers import whole_number
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.kineto.config_source import (
    DYNOLOG_PORT,
    ConfigSource,
    Delivery,
    Dynolog,
    OwnDaemon,
)
from decodescope.attach.kineto.daemon_socket import daemon_address
from decodescope.attach.kineto.processes import Process, has_ended
from decodescope.attach.kineto.trace_files import NoWindow, keep_traces, wait_for_traces
from decodescope.attach.kineto.window_config import LIBKINETO, Timing, WindowConfig

# Newer versions of libkineto write nowhere else, unless the variable names another folder.
_TRACE_FOLDER = "/tmp"
_TRACE_FOLDER_VARIABLE = "KINETO_ONDEMAND_TRACE_DIR"
_SOCKET_FOLDER_VARIABLE = "KINETO_IPC_SOCKET_DIR"
_JOB_VARIABLE = "SLURM_JOB_ID"
_MIN_FREE_BYTES = 64 << 20
# A configuration is lines of UTF-8, and libkineto puts the process id before the first suffix.
_NO_PART_OF_A_VALUE = ("=", "#", "\n", ".json")


class KinetoDoor(Door):
    """The door into `processes`, which have one; of one job in order of rank. With `all_must_ask`
    False, those that ask for no window are left out of it.

    The socket is bound during a window only, so that nothing waits in it that nobody answers.

    Raises:
        InputError: the processes have no folder or socket in common.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        all_must_ask: bool = True,
        dynolog_port: int = DYNOLOG_PORT,
        timing: Timing = LIBKINETO,
    ) -> None:
        self._processes = tuple(processes)
        self._required = self._processes if all_must_ask else ()
        self._dynolog_port, self._timing = dynolog_port, timing
        self._closed = threading.Event()
        self._address = daemon_address(_socket_folder(processes))
        self._trace_folder = Path(_common(processes, _TRACE_FOLDER_VARIABLE) or _TRACE_FOLDER)
        if not _is_value(str(self._trace_folder)):
            raise InputError(
                f"{_TRACE_FOLDER_VARIABLE} {self._trace_folder}: libkineto cannot read that name; "
                "start the processes with another folder"
            )

    @property
    def target(self) -> str:
        return _title(self._processes)

    @property
    def cost(self) -> str:
        return (
            "a window slows a process by 24 to 44 % while it runs, and by 8 to 21 % afterwards "
            "until it ends (measured on an H200); nothing is installed into it"
        )

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        """As in `Door`.

        Raises:
            DecodescopeError: a process ends, or writes no trace.
            MissingRequirement: a process does not ask for a window, the daemon's socket is taken,
                or the folder for traces is full.
            InputError: `plan.folder` cannot be written to.
        """
        _require_running(self._required)
        timing = replace(self._timing, lead_s=self._timing.lead_s + plan.added_warmup_s)
        with self._work_folder() as folder, self._config_source(timing) as source:
            say(f"waiting for {self.target} to ask for a window, every 5 s")
            try:
                return self._attempt(plan, folder / "window-1.json", source, say)
            except NoWindow:
                # On a busy machine, a process may look at a configuration too late.
                say("a process was too late for the window; waiting for another one")
                return self._attempt(plan, folder / "window-2.json", source, say)

    def _attempt(
        self, plan: WindowPlan, log_file: Path, source: ConfigSource, say: Callable[[str], None]
    ) -> CapturedWindow:
        config_at = partial(
            WindowConfig,
            log_file,
            duration_ms=plan.duration_ms,
            iterations=plan.iterations,
            added_warmup_s=plan.added_warmup_s,
        )
        delivery = source.deliver(
            [process.pid for process in self._processes],
            lambda start_ms: config_at(start_ms).text(),
            lambda: self._require(self._required),
        )
        watched = self._watched(delivery, say)
        config = config_at(delivery.start_ms)
        counted = plan.iterations
        length = f": {counted} iterations, or {plan.duration_ms} ms if it counts none"
        say(f"a window of {_title(watched)}{length if counted else ''}")
        try:
            wait_for_traces(config, watched, source.serve, self._require, self._timing)
            traces = keep_traces(config, watched, plan.folder)
        except OSError as error:
            raise MissingRequirement(
                f"{self._trace_folder}: the traces that the processes write there cannot be read "
                f"({error.strerror}); leave that folder as it is during a window, and try again"
            ) from error
        return CapturedWindow(traces, ObserverReport("kineto", _title(watched)))

    def close(self) -> None:
        """Nothing is open between windows; one that another thread waits for is given up."""
        self._closed.set()

    def _require(self, running: Iterable[Process]) -> None:
        if self._closed.is_set():
            raise DecodescopeError(f"{self.target}: left before the end of the window")
        _require_running(running)

    def _work_folder(self) -> WorkFolder:
        """A folder that the processes may write to, with space for their traces."""
        folder = self._trace_folder
        try:
            free_bytes = shutil.disk_usage(folder).free
            if free_bytes >= _MIN_FREE_BYTES:
                return WorkFolder(folder)
        except OSError as error:
            raise MissingRequirement(
                f"{folder}: cannot be written to ({error.strerror}), and the processes write their "
                "traces there; make it writable"
            ) from error
        raise MissingRequirement(
            f"{folder}: only {free_bytes >> 20} MB are free where the processes write their "
            "traces; free some"
        )

    def _config_source(self, timing: Timing) -> ConfigSource:
        """A daemon of our own, or the dynolog that runs already."""
        try:
            return OwnDaemon(self._address, timing)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                reason = error.strerror or error
                raise MissingRequirement(
                    f"the socket of libkineto's daemon cannot be opened ({reason}); look at "
                    f"{_SOCKET_FOLDER_VARIABLE} of the processes"
                ) from error
        try:
            jobs = {process.pid: _job(process) for process in self._processes}
            return Dynolog(jobs, self._dynolog_port, timing)
        except DecodescopeError as error:
            raise MissingRequirement(
                "the socket of libkineto's daemon is taken, by dynolog or another decodescope "
                f"attach, and no dynolog answers at port {self._dynolog_port}; end that process, "
                "or start dynolog with that port"
            ) from error

    def _watched(self, delivery: Delivery, say: Callable[[str], None]) -> tuple[Process, ...]:
        """The processes that have a window; those that may be left out of it are said."""
        watched = tuple(it for it in self._processes if it.pid in delivery.delivered)
        silent = [it for it in self._processes if it.pid not in delivery.delivered]
        if not silent:
            return watched
        if watched and not self._required:
            for process in silent:
                is_busy = process.pid in delivery.busy
                why = "a profiler runs in it already" if is_busy else "did not ask for it in time"
                say(f"no window of {process.title}: {why}")
            return watched
        if silent[0].pid in delivery.busy:
            raise DecodescopeError(
                f"{silent[0].title}: a profiler runs in it already; try again when it has ended"
            )
        raise MissingRequirement(
            f"{silent[0].title}: did not ask for a window in time; it may be stopped, or forked "
            "from a process that does; if it runs, try again"
        )


def _require_running(processes: Iterable[Process]) -> None:
    for process in processes:
        if has_ended(process):
            raise DecodescopeError(
                f"{process.title}: ended, and has no trace of the window; attach to one that "
                "still runs"
            )


def _common(processes: Sequence[Process], variable: str) -> str | None:
    """The folder that an environment variable names, which must be the same in all processes."""
    folders = {
        os.path.join(process.folder, value)
        if (value := process.environment.get(variable))
        else None
        for process in processes
    }
    if len(folders) > 1:
        raise InputError(
            f"{_title(processes)}: {variable} is different in them; attach to those alone that "
            "have the same"
        )
    return folders.pop()


def _socket_folder(processes: Sequence[Process]) -> str | None:
    """The folder of the daemon's socket, as the processes name it: libkineto ends its process at an
    answer from an address that begins otherwise."""
    folder = _common(processes, _SOCKET_FOLDER_VARIABLE)
    named = processes[0].environment.get(_SOCKET_FOLDER_VARIABLE) or None
    if named != folder and os.path.join(os.getcwd(), named or "") != folder:
        raise InputError(
            f"{_SOCKET_FOLDER_VARIABLE} {named}: begins at the working folder of "
            f"{_title(processes)}; run decodescope in {processes[0].folder}"
        )
    return named


def _is_value(name: str) -> bool:
    """Whether a configuration can have the file name `name` as a value."""
    is_text = os.fsencode(name).decode(errors="replace") == name
    return is_text and not any(part in name for part in _NO_PART_OF_A_VALUE)


def _job(process: Process) -> int:
    """The job as libkineto names it to dynolog."""
    text = process.environment.get(_JOB_VARIABLE, "")
    return whole_number(text) or 0


def _title(processes: Sequence[Process]) -> str:
    if len(processes) == 1:
        return processes[0].title
    pids = ", ".join(str(process.pid) for process in processes)
    return f"{len(processes)} processes ({processes[0].command}: {pids})"
