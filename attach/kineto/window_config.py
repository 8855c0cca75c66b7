"""The configuration of one window, as libkineto reads it: lines of KEY=VALUE."""

from dataclasses import dataclass
from pathlib import Path

from decodescope.attach.kineto.timing import WARMUP_S


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

    def text(self) -> str:
        lines = {
            "ACTIVITIES_LOG_FILE": self.log_file,
            "ACTIVITIES_WARMUP_PERIOD_SECS": WARMUP_S,
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
