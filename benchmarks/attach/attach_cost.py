"""`attach` to a decode loop: its step time beside the loop's own clock, and the cost to the loop.

For each variant, a process decodes with the Kineto door open. Windows follow one another; each is
analysed as `decodescope attach` does it, and the median of the loop's own times between tokens in
the same window stands beside the report's step time. tokens/s are the loop's before the first
window, in the windows, between them, and after the last. Writes
benchmarks/results/attach-cost.json.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import rich_click as click

from benchmarks.attach.held import resident_bytes
from benchmarks.harness.records import RESULTS, ROOT, write_record
from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.child_processes import running
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import job_processes
from decodescope.attach.taking import take_window
from decodescope.cli.options import number_option

_READY_TOKENS = 64
_READY_LIMIT_S = 300
_QUIET_S = 4.0
_INT64_BYTES = 8


class TokenClock:
    """The times at which a decode loop had its tokens, in ns of the wall clock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tokens(self) -> int:
        """The tokens so far."""
        return self._path.stat().st_size // _INT64_BYTES if self._path.exists() else 0

    def between(self, start_ns: int, end_ns: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The times from `start_ns` to `end_ns`."""
        times_ns = np.fromfile(self._path, dtype=np.int64, count=self.tokens())
        return times_ns[(times_ns >= start_ns) & (times_ns <= end_ns)]

    def step_ns(self, start_ns: int, end_ns: int) -> float:
        """Median time from one token to the next."""
        return float(np.median(np.diff(self.between(start_ns, end_ns))))

    def tokens_per_s(self, start_ns: int, end_ns: int) -> float:
        """Tokens divided by the time from the first to the last of them."""
        times_ns = self.between(start_ns, end_ns)
        return float((len(times_ns) - 1) / (times_ns[-1] - times_ns[0]) * 1e9)


@contextmanager
def decode_loop(
    model: str, variant: str, context: int, tokens: int, clock_file: Path
) -> Iterator[tuple[int, TokenClock]]:
    """A decoding process and its clock, past its first tokens."""
    arguments = [model, variant, str(context), str(tokens), str(clock_file)]
    clock = TokenClock(clock_file)
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    variables = {"KINETO_USE_DAEMON": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with running(
        [sys.executable, "-m", "benchmarks.attach.decode_loop", *arguments],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **variables},
    ) as process:
        limit_s = time.monotonic() + _READY_LIMIT_S
        while clock.tokens() < _READY_TOKENS:
            if process.poll() is not None or time.monotonic() > limit_s:
                raise DecodescopeError(f"{variant}: the decode loop did not start; see above")
            time.sleep(0.1)
        try:
            yield process.pid, clock
        finally:
            process.kill()


def quiet_tokens_per_s(clock: TokenClock) -> float:
    """tokens/s of the next seconds."""
    start_ns = time.time_ns()
    time.sleep(_QUIET_S)
    return clock.tokens_per_s(start_ns, time.time_ns())


def measured_window(door: KinetoDoor, clock: TokenClock, folder: Path, ms: int) -> dict[str, Any]:
    """One window: the report's figures and the clock's, of the same time."""
    asked_ns = time.time_ns()
    window = take_window(door, WindowPlan(folder, ms), lambda stage: None)
    written_ns = time.time_ns()
    (path,) = window.traces
    trace = load(path)
    answer = analyze(trace).report.answer
    # Without a GPU, a window holds operators alone.
    events = trace.ops if len(trace.ops.start_ns) else trace.cpu_ops
    start_ns = trace.base_ns + int(events.start_ns.min())
    end_ns = trace.base_ns + int(events.end_ns.max())
    clock_ns = clock.step_ns(start_ns, end_ns)
    found = {
        "steps": answer.steps,
        "step_ns": answer.step_ns,
        "clock_step_ns": clock_ns,
        "step_over_clock": answer.step_ns / clock_ns if answer.step_ns else None,
        "tokens_per_s": clock.tokens_per_s(start_ns, end_ns),
        "waiting_tokens_per_s": clock.tokens_per_s(asked_ns, start_ns),
        "window_s": (written_ns - asked_ns) / 1e9,
        "trace_bytes": path.stat().st_size,
        "bound": answer.bound,
    }
    path.unlink()
    return found


def measure_variant(
    model: str, variant: str, context: int, tokens: int, windows: int, ms: int
) -> dict[str, Any]:
    """All windows of one decode loop."""
    with (
        tempfile.TemporaryDirectory() as folder,
        decode_loop(model, variant, context, tokens, Path(folder, "clock")) as (pid, clock),
    ):
        time.sleep(_QUIET_S)
        before = quiet_tokens_per_s(clock)
        found: list[dict[str, Any]] = []
        failed: list[str] = []
        with KinetoDoor(job_processes([pid])) as door:
            for _ in range(windows):
                try:
                    found.append(measured_window(door, clock, Path(folder), ms))
                except DecodescopeError as error:
                    failed.append(str(error))
                    sys.stderr.write(f"{variant}: {error}\n")
                    continue
                found[-1]["target_bytes"] = resident_bytes(pid)
                found[-1]["own_bytes"] = resident_bytes(os.getpid())
                sys.stderr.write(f"{variant}: {found[-1]}\n")
        if not found:
            raise DecodescopeError(f"{variant}: none of {windows} windows: {failed[-1]}")
        after = quiet_tokens_per_s(clock)
    ratios = [one["step_over_clock"] for one in found if one["step_over_clock"] is not None]
    during = statistics.median(one["tokens_per_s"] for one in found)
    return {
        "before_tokens_per_s": before,
        "during_tokens_per_s": during,
        "after_tokens_per_s": after,
        "during_over_before": during / before,
        "after_over_before": after / before,
        "windows_with_steps": len(ratios),
        "step_over_clock": {
            "median": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
        }
        if ratios
        else None,
        "windows": found,
        "failed_windows": failed,
    }


@click.command("attach-cost")
@click.option("--model", metavar="M", default="llama-3.2-1b@random", show_default=True)
@click.option("--variants", "chosen", metavar="A,B,...", default="eager", show_default=True)
@number_option("--windows", default=20, show_default=True)
@number_option("--ms", default=300, show_default=True)
@number_option("--context", default=128, show_default=True)
@number_option("--tokens", default=500, show_default=True)
def command(model: str, chosen: str, windows: int, ms: int, context: int, tokens: int) -> None:
    """Windows of a running decode loop beside its own clock, and their cost to it."""
    found: dict[str, Any] = {}
    for variant in chosen.split(","):
        found[variant] = measure_variant(model, variant, context, tokens, windows, ms)
        # The next variant may fail, or take longer than the machine is there.
        record = {"model": model, "window_ms": ms, "variants": found}
        write_record(RESULTS / "attach-cost.json", record)
