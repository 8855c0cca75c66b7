"""The door into several servers at once: prefill and decode servers, data-parallel replicas."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from decodescope.analyzer.errors import (
    DecodescopeError,
    InputError,
    MissingRequirement,
    known_error,
)
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.door import CapturedWindow, Door, ServerWindow, WindowPlan
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import ServerMetrics
from decodescope.attach.servers.rates import rates

# A server that answers later is shown as one that does not; it is not asked again meanwhile.
_ANSWER_S = 2.0
_OBSERVE_S = 1.0
_TICK_S = 0.1
# Until a server was sent the end of a window that this process leaves.
_LEAVE_S = 10.0


class GroupDoor(Door):
    """The door into the servers behind `doors`, each of another name.

    All are asked for their metrics at one moment, and their windows begin at one moment, on the
    wall clock of this machine. One that does not answer or has no window holds up no other. `close`
    closes the doors.
    """

    def __init__(
        self, doors: Sequence[Door], answer_s: float = _ANSWER_S, observe_s: float = _OBSERVE_S
    ) -> None:
        self._members = tuple(_Member(door) for door in doors)
        self._answer_s, self._observe_s = answer_s, observe_s
        self._closed = threading.Event()

    @property
    def _doors(self) -> tuple[Door, ...]:
        return tuple(member.door for member in self._members)

    @property
    def target(self) -> str:
        return f"{len(self._members)} servers: {'; '.join(door.target for door in self._doors)}"

    @property
    def name(self) -> str:
        return f"{len(self._members)} servers"

    @property
    def cost(self) -> str:
        """The cost of each server, once where it is the same."""
        doors = self._with_windows or self._doors
        return "; ".join(dict.fromkeys(door.cost for door in doors))

    @property
    def model(self) -> str | None:
        """The model that all of them name."""
        models = {door.model for door in self._doors}
        return models.pop() if len(models) == 1 else None

    @property
    def has_windows(self) -> bool:
        return bool(self._with_windows)

    @property
    def _with_windows(self) -> tuple[Door, ...]:
        return tuple(door for door in self._doors if door.has_windows)

    def metrics(self) -> ServerMetrics:
        """The metrics of each server now.

        Raises:
            MissingRequirement: none of them answers.
        """
        for member in self._members:
            member.ask()
        until_s = time.monotonic() + self._answer_s
        answers = tuple(member.answer(until_s) for member in self._members)
        if all(answer.problem for answer in answers):
            raise MissingRequirement(answers[0].problem)
        return ServerMetrics(time.monotonic(), servers=answers)

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        """As in `Door`. A server without a window does not end those of the others.

        Raises:
            DecodescopeError: no server has a window; the reason of the first.
            InputError: two servers write their traces to one folder.
        """
        if not self.has_windows:
            raise MissingRequirement(self.cost)
        plans = {door.name: self._plan_of(door, plan) for door in self._doors}
        self._refuse_shared_folders(plans)
        say("measures tokens/s of each server")
        before = self._observed()
        start = _Start(len(self._with_windows))
        takes = [_Take(door, plans[door.name], start, say) for door in self._with_windows]
        try:
            for take in takes:
                take.start()
            for take in takes:
                # A signal may reach another thread; this one then looks at it here. After an
                # interrupted `join`, Python takes a thread that runs for one that has ended.
                while not take.ended.wait(_TICK_S):
                    pass
        except BaseException:
            self.close()
            for take in takes:
                take.ended.wait(_LEAVE_S)
            raise
        return self._together(before, {take.name: take for take in takes}, say)

    def close(self) -> None:
        self._closed.set()
        for door in self._doors:
            door.close()

    def _plan_of(self, door: Door, plan: WindowPlan) -> WindowPlan:
        """Where a server writes to the folder it is told, that is one of its own."""
        return replace(plan, folder=plan.folder / door.name.replace("/", "_").replace(":", "-"))

    def _refuse_shared_folders(self, plans: dict[str, WindowPlan]) -> None:
        found: dict[Path, str] = {}
        for door in self._with_windows:
            folder = door.trace_folder(plans[door.name])
            if folder is None:
                continue
            other = found.setdefault(folder.resolve(), door.name)
            if other != door.name:
                raise InputError(
                    f"{folder}: {other} and {door.name} both write their traces there, and they "
                    "cannot be told apart; give each server a folder of its own, and name it with "
                    "a --trace-dir for each URL"
                )

    def _observed(self) -> ServerFigures:
        first = self.metrics()
        if self._closed.wait(self._observe_s):
            raise DecodescopeError(f"{self.name}: left before the window")
        return figures(first, self.metrics())

    def _together(
        self, before: ServerFigures, takes: dict[str, "_Take"], say: Callable[[str], None]
    ) -> CapturedWindow:
        servers = []
        for door in self._doors:
            take = takes.get(door.name)
            window, problem = (None, door.cost) if take is None else (take.window, take.problem)
            if problem:
                say(f"no window of {door.name}: {problem}")
            servers.append(ServerWindow(door.name, window, problem))
        windows = [one.window for one in servers if one.window is not None]
        if not windows:
            raise next(take.error for take in takes.values() if take.error is not None)
        observers = [window.observer for window in windows]
        observer = ObserverReport(
            "servers",
            self.target,
            _sum([one.before_tokens_per_s for one in observers]),
            _sum([one.during_tokens_per_s for one in observers]),
            _sum([one.after_tokens_per_s for one in observers]),
        )
        traces = tuple(path for window in windows for path in window.traces)
        return CapturedWindow(traces, observer, before, tuple(servers))


class _Member:
    """A server of a group, and the last metrics that it gave."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._last = ServerMetrics(time.monotonic(), name=door.name)
        self._asking = threading.Thread()
        self._lock = threading.Lock()
        self._is_late = False
        self._is_known = True

    def ask(self) -> None:
        """Ask for the metrics in a thread, unless it still waits for them."""
        with self._lock:
            if not self._asking.is_alive():
                # A daemon: a server that hangs does not hold up the end of this process.
                asking = threading.Thread(target=self._ask, daemon=True)
                asking.start()
                self._asking, self._is_late = asking, False

    def answer(self, until_s: float) -> ServerMetrics:
        """The metrics by second `until_s` of the monotonic clock; with why there are none."""
        # One that is late already is not waited for again: the others have their pace.
        self._asking.join(0 if self._is_late else max(until_s - time.monotonic(), 0))
        self._is_late = self._asking.is_alive()
        if self._is_late:
            return with_fields(
                self._last, problem=f"{self.door.name}: has not answered yet; it is waited for"
            )
        return self._last

    def _ask(self) -> None:
        """Ask; after a silence or a restart, look again at what the server is."""
        try:
            if not self._is_known:
                self.door.look_again()
            metrics = self.door.metrics()
        except Exception as error:
            self._last = with_fields(self._last, problem=str(known_error(error)))
            self._is_known = False
        else:
            if metrics is not None:
                self._is_known = not rates(self._last, metrics).restarted
                self._last = with_fields(metrics, name=self.door.name)


class _Start:
    """Where the windows of several servers wait for each other; one that fails before is not waited
    for."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._changed = threading.Condition()

    def wait(self) -> None:
        with self._changed:
            self._arrive()
            self._changed.wait_for(lambda: self._missing <= 0)

    def leave(self) -> None:
        with self._changed:
            self._arrive()

    def _arrive(self) -> None:
        self._missing -= 1
        self._changed.notify_all()


class _Take(threading.Thread):
    """Takes the window of one server."""

    def __init__(
        self, door: Door, plan: WindowPlan, start: _Start, say: Callable[[str], None]
    ) -> None:
        super().__init__(name=door.name, daemon=True)
        self._door, self._start_line, self._say = door, start, say
        self._plan = replace(plan, begin=self._begin)
        self._arrived = False
        self.ended = threading.Event()
        self.window: CapturedWindow | None = None
        self.error: DecodescopeError | None = None

    @property
    def problem(self) -> str:
        return "" if self.error is None else str(self.error)

    def run(self) -> None:
        try:
            self.window = self._door.window(
                self._plan, lambda stage: self._say(f"{self._door.name}: {stage}")
            )
        except Exception as error:
            self.error = known_error(error)
        finally:
            if not self._arrived:
                self._start_line.leave()
            self.ended.set()

    def _begin(self) -> None:
        self._arrived = True
        self._start_line.wait()


def _sum(known: Sequence[float | None]) -> float | None:
    """The sum, None if one is not known."""
    return None if None in known else sum(value for value in known if value is not None)
