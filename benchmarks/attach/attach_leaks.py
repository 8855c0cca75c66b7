"""`attach` and its end, again and again: what both sides hold at the start and every so often.

The targets are a PyTorch process on the CPU, and a server with vLLM's endpoints and recorded
answers. An attach to the process begins a window and leaves before it is there, as Ctrl-C does; one
to the server reads its metrics. Then come whole windows. libkineto asks for windows every second in
place of every 5, which its configuration file allows. Writes benchmarks/results/attach-leaks.json.
"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rich_click as click
from msgspec.structs import asdict

from benchmarks.attach.held import Held
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.child_processes import running
from decodescope.attach.door import Door, WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import job_processes
from decodescope.attach.servers.opening import open_servers
from decodescope.cli.options import number_option

_STAY_S = 0.05
_WINDOW_MS = 1
_ASK_EVERY_S = 1


@dataclass(frozen=True, slots=True)
class Watched:
    """A process, the call that opens a door into it, and the folders in which its files and sockets
    appear; those that are `own` stay while it runs."""

    pid: int
    open: Callable[[], Door]
    attach: Callable[[Door, WindowPlan], None]
    folders: Sequence[Path]
    own: frozenset[str]

    def left(self) -> list[str]:
        """The files and sockets that are there and not the target's own."""
        found = {str(path) for folder in self.folders for path in folder.rglob("*")}
        return sorted(found - self.own)


@dataclass(slots=True)
class Repeats:
    """The attaches and windows of a target, and the resources that both sides held meanwhile."""

    target: Watched
    every: int
    samples: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def sample(self, attaches: int, windows: int) -> None:
        gc.collect()
        own, target = Held.by(os.getpid()), Held.by(self.target.pid)
        done = {"attaches": attaches, "windows": windows}
        held = {"own": asdict(own), "target": asdict(target), "left": self.target.left()}
        self.samples.append(done | held)
        sys.stderr.write(f"{self.samples[-1]}\n")

    def run(self, attaches: int, windows: int, folder: Path) -> dict[str, Any]:
        """Attach and leave, then take windows, which are removed again."""
        plan = WindowPlan(folder, _WINDOW_MS)
        self.sample(0, 0)
        for done in range(1, attaches + 1):
            with self.target.open() as door:
                self.target.attach(door, plan)
            if done % self.every == 0 or done == attaches:
                self.sample(done, 0)
        for done in range(1, windows + 1):
            try:
                with self.target.open() as door:
                    traces = door.window(plan, lambda stage: None).traces
                for path in traces[0].parent.iterdir():
                    path.unlink()
            except DecodescopeError as error:
                self.failed.append(str(error))
                sys.stderr.write(f"{error}\n")
            if done % self.every == 0 or done == windows:
                self.sample(attaches, done)
        return {"samples": self.samples, "failed_windows": self.failed}


def leave_early(door: Door, plan: WindowPlan) -> None:
    """Begin a window and leave while it is waited for."""
    has_left = threading.Event()

    def leave() -> None:
        has_left.set()
        door.close()

    timer = threading.Timer(_STAY_S, leave)
    timer.start()
    try:
        door.window(plan, lambda stage: None)
    except DecodescopeError:
        if not has_left.is_set():
            raise
    finally:
        timer.cancel()
        timer.join()


def read_metrics(door: Door, plan: WindowPlan) -> None:
    """Ask a server for its metrics once."""
    door.metrics()


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[tuple[int, str]]:
    """A Python process of this checkout, and its first line."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    with running(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, **variables},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        if not line:
            raise DecodescopeError(f"{arguments[0]}: did not start; see above")
        try:
            yield process.pid, line
        finally:
            process.kill()


@contextmanager
def folders(*names: str) -> Iterator[list[Path]]:
    """Empty temporary folders."""
    with tempfile.TemporaryDirectory() as above:
        made = [Path(above, name) for name in names]
        for folder in made:
            folder.mkdir()
        yield made


def process_repeats(attaches: int, windows: int, every: int) -> dict[str, Any]:
    """Attaches to a PyTorch process."""
    with folders("sockets", "traces", "out", "config") as (sockets, traces, out, config):
        settings = config / "libkineto.conf"
        settings.write_text(f"ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={_ASK_EVERY_S}\n")
        variables = {
            "KINETO_USE_DAEMON": "1",
            "KINETO_CONFIG": str(settings),
            "KINETO_IPC_SOCKET_DIR": str(sockets),
            "KINETO_ONDEMAND_TRACE_DIR": str(traces),
        }
        with started("benchmarks.attach.step_loop", **variables) as (pid, _):
            own = frozenset(map(str, sockets.iterdir()))
            target = Watched(
                pid,
                lambda: KinetoDoor(job_processes([pid])),
                leave_early,
                (sockets, traces, out),
                own,
            )
            return Repeats(target, every).run(attaches, windows, out)


def server_repeats(attaches: int, windows: int, every: int) -> dict[str, Any]:
    """Attaches to a server of recorded answers."""
    with (
        folders("traces") as (traces,),
        started("tests.helpers.servers.recorded", str(traces)) as (pid, url),
    ):
        target = Watched(
            pid,
            lambda: open_servers([url], [traces], None, lambda line: None),
            read_metrics,
            (traces,),
            frozenset(),
        )
        return Repeats(target, every).run(attaches, windows, traces)


@click.command("attach-leaks")
@number_option("--attaches", default=1000, show_default=True)
@number_option("--windows", default=100, show_default=True)
@number_option("--every", default=100, show_default=True)
def command(attaches: int, windows: int, every: int) -> None:
    """Resources that both sides of many attaches hold at the start, meanwhile, and at the end."""
    found = {
        "process": process_repeats(attaches, windows, every),
        "server": server_repeats(attaches, windows, every),
    }
    record = {"attaches": attaches, "windows": windows, "targets": found}
    write_record(RESULTS / "attach-leaks.json", record)
