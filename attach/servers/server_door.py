"""The door into an inference server: its metrics at any time, and windows where its engine has a
profile endpoint."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.servers.client import LIMIT_S, ServerClient
from decodescope.attach.servers.engine import EngineServer, recognise
from decodescope.attach.servers.engines import engines
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import ServerMetrics, read_metrics
from decodescope.attach.servers.trace_files import TraceFolder
from decodescope.attach.servers.windows import (
    STOP_LIMIT_S,
    TICK_S,
    ProfileEndpoint,
    Refused,
    profile_endpoint,
)

# The steps of a window whose length in steps is not known from the metrics.
_DEFAULT_STEPS, _MAX_STEPS = 20, 1000
_COST = (
    "a window slows decoding while it lasts (24 to 44 % of a PyTorch loop on an H200, more with "
    "Python stacks), and by 8 to 21 % afterwards until the server restarts"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a window: tokens/s are measured for `observe_s` on each side of it, the server
    is read every `poll_s`, and the steps and the files are waited for."""

    observe_s: float = 1.0
    poll_s: float = 0.1
    steps_s: float = 30.0
    files_s: float = 60.0


class ServerDoor(Door):
    """The door into the server that `client` talks to. It holds no connection, so `close` only ends
    a window; `metrics` may be called during a window, from another thread."""

    def __init__(
        self,
        client: ServerClient,
        server: EngineServer,
        trace_dir: Path | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._client, self._server, self._trace_dir = client, server, trace_dir
        self._pace = pace or Pace()
        self._busy = threading.Lock()
        self._closed = threading.Event()
        self._endpoint = self._profile_endpoint()
        # Where the files of a window that ends itself are still to come.
        self._awaited: TraceFolder | None = None

    @property
    def target(self) -> str:
        return f"{self._server.title} at {self._client.address.url}{self._server.serving}"

    @property
    def name(self) -> str:
        """The host and the port, which tell the server from others: "127.0.0.1:8000"."""
        return self._client.address.url.partition("://")[2]

    @property
    def is_known(self) -> bool:
        """Whether the server has answered; until then, look at it again."""
        return not self._server.problem

    @property
    def cost(self) -> str:
        if self._server.problem:
            return self._server.problem
        cost = _COST
        if self._endpoint is None:
            cost = f"only the metrics are read: {self._no_windows()}"
        if self._server.metrics_path is None:
            option = engines()[self._server.engine].metrics_option
            cost += f"; tokens/s is not known, as the server has to be started with {option}"
        return cost

    @property
    def model(self) -> str | None:
        return self._server.model

    @property
    def has_windows(self) -> bool:
        """Whether the engine has a profile endpoint; the server may still run without it."""
        return self._endpoint is not None

    def metrics(self) -> ServerMetrics:
        """The server's metrics now; all None if it has none.

        Raises:
            DecodescopeError: the server does not answer, or with something else.
        """
        path = self._server.metrics_path
        if path is None:
            return ServerMetrics(time.monotonic())
        answer = self._client.get(path).required()
        # A busy server lets a request wait before it looks at its counters, not afterwards.
        now_s = time.monotonic()
        return read_metrics(answer.body, self._server.engine, now_s, answer.url)

    def look_again(self) -> None:
        self._server = recognise(self._client)
        self._endpoint = self._profile_endpoint()

    def trace_folder(self, plan: WindowPlan) -> Path | None:
        """The folder in which the server writes the traces of a window; None if that is not
        known."""
        with suppress(InputError):  # `window` raises it
            return None if self._endpoint is None else self._endpoint.folder(plan)
        return None

    def window(self, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
        if self._endpoint is None:
            raise MissingRequirement(self._no_windows())
        if not self._busy.acquire(blocking=False):
            raise InputError(f"{self.target}: a window is open already; wait for its end")
        try:
            return self._only_window(self._endpoint, plan, say)
        finally:
            self._busy.release()

    def close(self) -> None:
        self._closed.set()

    def _profile_endpoint(self) -> ProfileEndpoint | None:
        return profile_endpoint(self._client, self._server, self._trace_dir, self._closed)

    def _only_window(
        self, endpoint: ProfileEndpoint, plan: WindowPlan, say: Callable[[str], None]
    ) -> CapturedWindow:
        self._require_end_of_last()
        say("measures tokens/s before the window")
        before = self._observed()
        # Meanwhile vLLM says where its traces go, which takes it seconds the first time.
        folder = self._folder(endpoint, plan)
        plan.begin()
        steps = plan.iterations or _steps_in(plan.duration_ms / 1000, before)
        if plan.iterations is None and not endpoint.ends_itself:
            # A bound: a busy server may take seconds to stop.
            steps = max(steps, _DEFAULT_STEPS)
            say(f"records {plan.duration_ms} ms")
        else:
            say(f"records {steps} steps")
        during = figures(*self._open_window(endpoint, folder, plan, steps, say))
        if during.restarted:
            raise MissingRequirement(
                f"{self._client.address.url}: the server restarted during the window; take another"
            )
        say(f"waits for the files in {folder.path}")
        traces = folder.wait(self._server.ranks, self._pace.files_s)
        self._awaited = None
        with suppress(DecodescopeError):  # the window itself is there
            endpoint.disarm(traces)
        say("measures tokens/s after the window")
        after = None
        with suppress(DecodescopeError):  # the window itself is there
            after = self._observed().generated_per_s
        observer = ObserverReport(
            endpoint.name, self.target, before.generated_per_s, during.generated_per_s, after
        )
        return CapturedWindow(traces, observer)

    def _open_window(
        self,
        endpoint: ProfileEndpoint,
        folder: TraceFolder,
        plan: WindowPlan,
        steps: int,
        say: Callable[[str], None],
    ) -> tuple[ServerMetrics, ServerMetrics]:
        """Open a window and wait for its end; the metrics at both ends.

        The window is stopped on an error too, also on one of which it is not known whether the
        server got the request before it.
        """
        if endpoint.ends_itself:
            self._awaited = folder
        try:
            self._while_open(partial(endpoint.start, folder.path, steps))
            first = self.metrics()
            if endpoint.ends_itself:
                last = self._until_files(folder, first)
            else:
                last = self._until_steps(plan, first, say)
            endpoint.stop(STOP_LIMIT_S)
        except Refused:
            self._awaited = None
            raise
        except BaseException:
            with suppress(DecodescopeError):
                endpoint.stop(LIMIT_S)
            raise
        return first, last

    def _until_steps(
        self, plan: WindowPlan, first: ServerMetrics, say: Callable[[str], None]
    ) -> ServerMetrics:
        """The metrics at the end of a window that is to be stopped."""
        if plan.iterations is None or first.iterations is None:
            self._sleep(plan.duration_ms / 1000)
            return self.metrics()
        end_s = time.monotonic() + self._pace.steps_s
        last = first
        while time.monotonic() < end_s:
            self._sleep(self._pace.poll_s)
            last = self.metrics()
            done = (last.iterations or 0) - first.iterations
            if done < 0 or done >= plan.iterations:
                return last
        say(f"the server has not done {plan.iterations} steps within {self._pace.steps_s:g} s")
        return last

    def _until_files(self, folder: TraceFolder, first: ServerMetrics) -> ServerMetrics:
        """The last metrics before a window that ends itself has a file."""
        end_s = time.monotonic() + self._pace.steps_s
        last = first
        while time.monotonic() < end_s and not folder.has_new():
            last = self.metrics()
            self._sleep(self._pace.poll_s)
        return last

    def _observed(self) -> ServerFigures:
        """The figures of `observe_s` from now on."""
        first = self.metrics()
        if self._server.metrics_path is not None:
            self._sleep(self._pace.observe_s)
        return figures(first, self.metrics())

    def _sleep(self, seconds: float) -> None:
        """Wait; an error if the door is closed meanwhile."""
        left_s = seconds
        while left_s > 0:
            self._require_open()
            time.sleep(min(left_s, TICK_S))
            left_s -= TICK_S

    def _while_open(self, request: Callable[[], None]) -> None:
        """Wait for a request that a server takes long to answer; an error if the door is closed
        meanwhile."""
        answered = in_daemon_thread(request)
        while wait([answered], TICK_S).not_done:
            self._require_open()
        answered.result()

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise DecodescopeError(f"{self.target}: left before the end of the window")

    def _folder(self, endpoint: ProfileEndpoint, plan: WindowPlan) -> TraceFolder:
        path = endpoint.folder(plan)
        if not endpoint.ends_itself and not path.is_dir():
            raise InputError(
                f"{path}: no folder of this machine; name the folder in which the server's traces "
                "appear with --trace-dir"
            )
        return TraceFolder(path, endpoint.takes)

    def _require_end_of_last(self) -> None:
        if self._awaited is not None and not self._awaited.has_new():
            raise MissingRequirement(
                f"{self._client.address.url}: the last window has not ended; it ends after its "
                "steps: see that requests run"
            )

    def _no_windows(self) -> str:
        why = engines()[self._server.engine].by_hand
        return f"{self._client.address.url}: {self._server.title} {why}, as docs/engines.md says"


def _steps_in(duration_s: float, measured: ServerFigures) -> int:
    """The decode steps in `duration_s`: each gives every running request a token."""
    if not measured.running or not measured.generated_per_s:
        return _DEFAULT_STEPS
    steps = duration_s * float(measured.generated_per_s) / measured.running
    return round(min(max(steps, 1.0), _MAX_STEPS))
