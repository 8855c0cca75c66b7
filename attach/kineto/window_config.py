"""The configuration of one window, as libkineto reads it, and how long libkineto takes."""

from dataclasses import dataclass
from pathlib import Path

# The profiler is enabled this long before the window, so that its own start is not in it.
WARMUP_S = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of `ConfigLoader.cpp` and `AsyncActivityProfilerHandler.cpp`, and patience beyond them.

    A process asks within `poll_s`: every 5 s, or 5.12 s after a try that found no daemon. A window
    begins `lead_s` after the answer: libkineto's thread looks at it once a second, and then warms
    up. A process whose profiler does not run `refused_s` after that has refused the window, as that
    thread was late. After `silent_s` a process counts as one that does not ask. Its trace comes a
    second or two after the window; after `trace_s` without a byte it counts as missing, in a window
    of iterations after `iterations_s`, since the process decides how long they take.
    """

    poll_s: float = 5.6
    lead_s: float = WARMUP_S + 1.4
    refused_s: float = 1.5
    silent_s: float = 9.0
    trace_s: float = 10.0
    iterations_s: float = 60.0


LIBKINETO = Timing()


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """A window that begins at `start_ms` of the wall clock; the process with id PID writes it to
    `log_file` with `_PID` before its suffix `.json`.

    With `iterations`, a process that counts its iterations begins at its next one; one that does
    not count them has a window of `duration_ms`. Neither stacks nor shapes are recorded, since both
    slow the host. `TEARDOWN_CUPTI` is never set: a process crashed with it.
    """

    log_file: Path
    start_ms: int
    duration_ms: int
    iterations: int | None = None
    added_warmup_s: int = 0

    def text(self) -> str:
        lines = {
            "ACTIVITIES_LOG_FILE": self.log_file,
            "ACTIVITIES_WARMUP_PERIOD_SECS": WARMUP_S + self.added_warmup_s,
            "ACTIVITIES_DURATION_MSECS": self.duration_ms,
            "PROFILE_START_TIME": self.start_ms,
            "PROFILE_REPORT_INPUT_SHAPES": "false",
            "PROFILE_WITH_STACK": "false",
            "PROFILE_WITH_FLOPS": "false",
            "PROFILE_WITH_MODULES": "false",
        }
        if self.iterations is not None:
            lines |= {
                "PROFILE_START_ITERATION": 0,
                "PROFILE_START_ITERATION_ROUNDUP": 1,
                "ACTIVITIES_ITERATIONS": self.iterations,
            }
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    def trace_file(self, pid: int) -> Path:
        """The file that the process writes, complete as soon as it has this name."""
        return self.log_file.with_name(f"{self.log_file.stem}_{pid}.json")

    def growing_file(self, pid: int) -> Path:
        """The name of that file while the process still writes it."""
        trace_file = self.trace_file(pid)
        return trace_file.with_name(f"{trace_file.name}.tmp")
