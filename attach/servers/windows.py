"""The profile endpoints of engines, which open windows."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers.client import LIMIT_S, Answer, ServerClient
from decodescope.attach.servers.engine import EngineServer, vllm_trace_folder

# The first window loads the profiler's library in each rank; a server answers /stop_profile when
# its ranks have written their files.
START_LIMIT_S, STOP_LIMIT_S = 60.0, 300.0
# A closed door is left within this time.
TICK_S = 0.1


@dataclass(eq=False)
class ProfileEndpoint(ABC):
    """The windows of one engine, which waits for nothing once `closed` is set. `ends_itself` says
    that a window ends after its steps, not when it is stopped."""

    name: ClassVar[Literal["vllm", "sglang"]]
    ends_itself: ClassVar[bool]

    client: ServerClient
    server: EngineServer
    trace_dir: Path | None
    closed: threading.Event

    @abstractmethod
    def folder(self, plan: WindowPlan) -> Path:
        """The folder of this machine in which the traces of a window appear.

        Raises:
            InputError: it is not known.
        """

    @abstractmethod
    def takes(self, name: str) -> bool:
        """Whether the file `name` is the trace of a rank."""

    @abstractmethod
    def start(self, folder: Path, steps: int) -> None:
        """Open a window of `steps` at most.

        Raises:
            Refused: the server refuses, and no window is open.
            DecodescopeError: it is not known whether one is open.
        """

    @abstractmethod
    def stop(self, limit_s: float) -> None:
        """End the window, also one that may not have been opened.

        Raises:
            DecodescopeError: the server does not say that it has ended.
        """

    def disarm(self, traces: tuple[Path, ...]) -> None:
        """Leave no profiler waiting in the server, once the `traces` of a window are there."""
        return

    def _started(self, answer: Answer, without_endpoint: str) -> None:
        if answer.status in (404, 405):
            raise Refused(f"{answer.url}: {self.server.title} {without_endpoint}")
        if answer.status == 409:
            raise Refused(f"{answer.url}: another client records a window; wait for its end")
        try:
            answer.required()
        except MissingRequirement as error:
            raise Refused(str(error)) from None


class Refused(MissingRequirement):
    """The server did not open a window."""


@dataclass(eq=False)
class VllmEndpoint(ProfileEndpoint):
    """vLLM's: the folder is set when the server starts; a window lasts until it is stopped."""

    name = "vllm"
    ends_itself = False

    def __post_init__(self) -> None:
        # The first window alone waits for the folder's name; a later one takes it if it has come.
        self._told, self._patience_s = None, LIMIT_S
        if self.trace_dir is None and self.client.address.is_local:
            self._told = in_daemon_thread(partial(vllm_trace_folder, self.client))

    def folder(self, plan: WindowPlan) -> Path:
        if (told := self._named(plan.say)) is not None:
            return Path(told)
        if self.trace_dir is None:
            raise InputError(
                f"{self.client.address.url}: does not say where its traces go; name the folder of "
                "its torch_profiler_dir with --trace-dir"
            )
        return self.trace_dir

    def _named(self, say: Callable[[str], None]) -> str | None:
        """The folder that the server names; None if it does not, or has not until the door is
        closed."""
        if self._told is None:
            return None
        if self._patience_s and not self._told.done():
            say(f"waits up to {self._patience_s:g} s for the server to name its trace folder")
            end_s, self._patience_s = time.monotonic() + self._patience_s, 0.0
            while time.monotonic() < end_s and not self.closed.is_set():
                if wait([self._told], TICK_S).done:
                    break
        return self._told.result() if self._told.done() else None

    def takes(self, name: str) -> bool:
        return ".async_llm." not in name

    def start(self, folder: Path, steps: int) -> None:
        # Since 0.32 the ranks stop after so many steps; older versions ignore the body.
        self._started(
            self.client.post("/start_profile", {"max_iterations": steps}, START_LIMIT_S),
            "runs without its profiler; start it with --profiler-config "
            '\'{"profiler":"torch","torch_profiler_dir":"DIR"}\' (before 0.13: with '
            "VLLM_TORCH_PROFILER_DIR=DIR), or record to a file as docs/engines.md says",
        )

    def stop(self, limit_s: float) -> None:
        self.client.post("/stop_profile", limit_s=limit_s).required()


class SglangEndpoint(ProfileEndpoint):
    """SGLang's: the request names the folder and the number of steps.

    The request is what both of its profilers take. The newer one (SGLANG_PROFILE_V2=1) profiles by
    stage only, and a request for anything else, to stop, or for a second window is an exception in
    its scheduler, which ends the server. So no window is stopped: it ends after its steps. The
    older one, whose files bear the stage in capitals, then waits for a prefill to profile, until it
    is stopped.
    """

    name = "sglang"
    ends_itself = True

    def folder(self, plan: WindowPlan) -> Path:
        if self.trace_dir is None and not self.client.address.is_local:
            raise InputError(
                f"{self.client.address.url}: writes its traces on another machine; name a folder "
                "that both have under one path with --trace-dir"
            )
        return (self.trace_dir or plan.folder).absolute()

    def takes(self, name: str) -> bool:
        stages = ("-prefill.", "-EXTEND.") if self.server.is_prefill else ("-decode.", "-DECODE.")
        return any(stage in name for stage in stages)

    def start(self, folder: Path, steps: int) -> None:
        body = {
            "output_dir": str(folder),
            "num_steps": steps,
            "activities": ["CPU", "GPU"],
            "profile_by_stage": True,
            "profile_stages": ["prefill" if self.server.is_prefill else "decode"],
            "with_stack": False,
            "record_shapes": False,
        }
        self._started(
            self.client.post("/start_profile", body, START_LIMIT_S),
            "has no profile endpoint; record to a file as docs/engines.md says",
        )

    def stop(self, limit_s: float) -> None:
        return

    def disarm(self, traces: tuple[Path, ...]) -> None:
        if any("-DECODE." in path.name for path in traces):
            # It refuses where nothing waits.
            self.client.post("/stop_profile")


def profile_endpoint(
    client: ServerClient, server: EngineServer, trace_dir: Path | None, closed: threading.Event
) -> ProfileEndpoint | None:
    """The profile endpoint of the server's engine; None if it has none."""
    endpoint = {"vllm": VllmEndpoint, "sglang": SglangEndpoint}.get(server.engine)
    return None if endpoint is None else endpoint(client, server, trace_dir, closed)
