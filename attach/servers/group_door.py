"""The door into several servers at once: prefill and decode servers, data-parallel replicas."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from decodescope.analyzer.errors import (
    DecodescopeError,
    InputError,
    MissingRequirement,
    known_error,
)
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import ServerMetrics
from decodescope.attach.servers.server_door import ServerDoor

if TYPE_CHECKING:
    from decodescope.analyzer.reports.rank_analysis import ServerTraces

# A server that answers later is shown as one that does not; it is not asked again meanwhile.
_ANSWER_S = 2.0
_OBSERVE_S = 1.0
_TICK_S = 0.1
# Until a server was sent the end of a window that this process leaves.
_LEAVE_S = 10.0


class GroupDoor(Door):
    """The door into the servers behind `doors`, each of another name.

    All are asked for their metrics at one moment, and their windows begin at one moment, on the
    wall clock of this machine. One that does not answer or has no window holds up no other; their
    trace folders are waited for together, as long as for one. `close` closes the doors.
    """

    def __init__(
        self,
        doors: Sequence[ServerDoor],
        answer_s: float = _ANSWER_S,
        observe_s: float = _OBSERVE_S,
    ) -> None:
        self._doors, self._members = tuple(doors), tuple(map(_Member, doors))
        self._answer_s, self._observe_s = answer_s, observe_s
        self._closed = threading.Event()

    @property
    def target(self) -> str:
        return f"{len(self._doors)} servers: {'; '.join(door.target for door in self._doors)}"

    @property
    def cost(self) -> str:
        """The cost of each server, once where it is the same."""
        doors = self._with_windows or self._doors
        return "; ".join(dict.fromkeys(door.cost for door in doors))

    @property
    def model(self) -> str | None:
        """The model that all of them name that have answered."""
        models = {door.model for door in self._doors if door.is_known}
        return models.pop() if len(models) == 1 else None

    @property
    def has_windows(self) -> bool:
        return bool(self._with_windows)

    @property
    def _with_windows(self) -> tuple[ServerDoor, ...]:
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

    def look_again(self) -> None:
        """As in `Door`, when the metrics are asked for next."""
        for member in self._members:
            member.is_known = False

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        """As in `Door`. A server without a window does not end those of the others.

        Raises:
            DecodescopeError: no server has a window; the reason of the first.
            InputError: two servers write their traces to one folder.
        """
        say("measures tokens/s of each server")
        before = self._observed()
        doors = self._with_windows
        if not doors:
            raise MissingRequirement(self.cost)
        plans = {door: self._plan_of(door, plan, say) for door in doors}
        self._wait_for_folders(plans)
        _refuse_shared_folders(plans)
        start = _Start(door.name for door in doors)
        takes: dict[str, Future[CapturedWindow]] = {}
        try:
            for door in doors:
                take = partial(_window_from, start, door, plans[door])
                takes[door.name] = in_daemon_thread(take)
            # A signal may reach another thread; this one then looks at it here.
            while wait(takes.values(), _TICK_S).not_done:
                pass
        except BaseException:
            self.close()
            wait(takes.values(), _LEAVE_S)
            raise
        return self._together(before, takes, say)

    def close(self) -> None:
        self._closed.set()
        for door in self._doors:
            door.close()

    def _plan_of(
        self, door: ServerDoor, plan: WindowPlan, say: Callable[[str], None]
    ) -> WindowPlan:
        """A plan for one server; if it writes to the folder it is told, that is its own."""
        folder = plan.folder / door.name.replace("/", "_").replace(":", "-")
        return replace(plan, folder=folder, say=lambda stage: say(f"{door.name}: {stage}"))

    def _wait_for_folders(self, plans: Mapping[ServerDoor, WindowPlan]) -> None:
        """Wait for all trace folders at once; a server that is late then has no window."""
        named = [in_daemon_thread(partial(door.trace_folder, plans[door])) for door in plans]
        while wait(named, _TICK_S).not_done:
            self._require_open(0)

    def _observed(self) -> ServerFigures:
        first = self.metrics()
        self._require_open(self._observe_s)
        return figures(first, self.metrics())

    def _require_open(self, seconds: float) -> None:
        """Wait; an error if the door is closed by then."""
        if self._closed.wait(seconds):
            raise DecodescopeError(f"{len(self._doors)} servers: left before the window")

    def _together(
        self,
        before: ServerFigures,
        takes: Mapping[str, Future[CapturedWindow]],
        say: Callable[[str], None],
    ) -> CapturedWindow:
        servers = tuple(
            _part(door, shown, takes.get(door.name))
            for door, shown in zip(self._doors, before.servers, strict=True)
        )
        for one in servers:
            if one.problem:
                say(f"no window of {one.figures.name}: {one.problem}")
        observers = [one.observer for one in servers if one.observer is not None]
        if not observers:
            next(iter(takes.values())).result()  # raises why the first has none
        observer = ObserverReport(
            "servers",
            self.target,
            _sum([one.before_tokens_per_s for one in observers]),
            _sum([one.during_tokens_per_s for one in observers]),
            _sum([one.after_tokens_per_s for one in observers]),
        )
        traces = tuple(path for one in servers for path in one.paths)
        return CapturedWindow(traces, observer, before, servers)


class _Member:
    """A server of a group, and the last metrics that it gave."""

    def __init__(self, door: ServerDoor) -> None:
        self.door = door
        self._last = ServerMetrics(time.monotonic(), name=door.name)
        self._asking = Future[None]()
        self._asking.set_result(None)
        self._lock = threading.Lock()
        self._is_late = False
        self.is_known = door.is_known

    def ask(self) -> None:
        """Ask for the metrics in a thread, unless it still waits for them."""
        with self._lock:
            if self._asking.done():
                self._asking, self._is_late = in_daemon_thread(self._ask), False

    def answer(self, until_s: float) -> ServerMetrics:
        """The metrics by second `until_s` of the monotonic clock, or else the last known ones."""
        # One that is late already is not waited for again: the others have their pace.
        wait([self._asking], 0 if self._is_late else max(until_s - time.monotonic(), 0))
        self._is_late = not self._asking.done()
        if self._is_late:
            return with_fields(
                self._last, problem=f"{self.door.name}: has not answered yet; it is waited for"
            )
        return self._last

    def _ask(self) -> None:
        """Ask; after a silence or a restart, look again at what the server is."""
        try:
            if not self.is_known:
                self.door.look_again()
            metrics = self.door.metrics()
        except Exception as error:
            self._last = with_fields(self._last, problem=str(known_error(error)))
            self.is_known = False
        else:
            self.is_known = not figures(self._last, metrics).restarted
            self._last = with_fields(metrics, name=self.door.name)


class _Start:
    """The point at which the windows of several servers wait for each other. A window that failed
    before it is not waited for."""

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = set(names)
        self._changed = threading.Condition()

    def leave(self, name: str) -> None:
        with self._changed:
            self._missing.discard(name)
            self._changed.notify_all()

    def wait(self, name: str) -> None:
        self.leave(name)
        with self._changed:
            self._changed.wait_for(lambda: not self._missing)


def _window_from(start: _Start, door: ServerDoor, plan: WindowPlan) -> CapturedWindow:
    try:
        return door.window(replace(plan, begin=partial(start.wait, door.name)), plan.say)
    finally:
        start.leave(door.name)


def _refuse_shared_folders(plans: Mapping[ServerDoor, WindowPlan]) -> None:
    found: dict[Path, str] = {}
    for door, plan in plans.items():
        folder = door.trace_folder(plan)
        if folder is None:
            continue
        other = found.setdefault(folder.resolve(), door.name)
        if other != door.name:
            raise InputError(
                f"{folder}: {other} and {door.name} both write their traces there, and they cannot "
                "be told apart; give each server a folder of its own, and name it with a "
                "--trace-dir for each URL"
            )


def _part(
    door: ServerDoor, before: ServerFigures, take: Future[CapturedWindow] | None
) -> "ServerTraces":
    # Its module is slow to import, and the first message comes before a window.
    from decodescope.analyzer.reports.rank_analysis import ServerTraces

    if take is None:
        return ServerTraces(before, problem=before.problem or door.cost)
    try:
        window = take.result()
    except Exception as error:
        return ServerTraces(before, problem=str(known_error(error)))
    return ServerTraces(before, window.traces, window.observer)


def _sum(known: Sequence[float | None]) -> float | None:
    """The sum, None if one is not known."""
    return None if None in known else sum(value for value in known if value is not None)
