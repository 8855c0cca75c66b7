"""Where the seconds between a key and its answer go: to the engine, to other processes that had the
processor meanwhile, and to decodescope."""

import time
from pathlib import Path

# The engine opens the window, does the steps, and writes the file.
_OF_THE_ENGINE = ("records ", "waits for the files ")


class AnswerTime:
    """The time from now on until `answered`, of which the process `pid` says its stages."""

    def __init__(self, pid: int) -> None:
        self._pid, self._began_s, self._waited_s = pid, time.monotonic(), waited_s(pid)
        self._stage, self._stage_s = "starts", self._began_s
        self._others_s = 0.0
        self.seconds: dict[str, float] = {}

    def says(self, stage: str) -> None:
        """The process is in `stage` now."""
        now_s = time.monotonic()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now_s - self._stage_s
        self._stage, self._stage_s = stage, now_s

    def answered(self) -> None:
        """The answer is there; the process need not have ended."""
        self.says("answered")
        waited = waited_s(self._pid)
        self._others_s = max(waited[one] - self._waited_s.get(one, 0.0) for one in waited)

    @property
    def engine_s(self) -> float:
        return sum(s for stage, s in self.seconds.items() if stage.startswith(_OF_THE_ENGINE))

    @property
    def ours_s(self) -> float:
        """All but the time of the engine, and the longest for which one thread of the process was
        ready to run and had no processor."""
        return sum(self.seconds.values()) - self.engine_s - self._others_s

    def __str__(self) -> str:
        parts = {
            "to the answer": sum(self.seconds.values()),
            "of the engine": self.engine_s,
            "of other processes": self._others_s,
            "of decodescope": self.ours_s,
            **self.seconds,
        }
        return ", ".join(f"{seconds:.2f} s {part}" for part, seconds in parts.items())


def waited_s(pid: int) -> dict[str, float]:
    """How long each thread of a process has been ready to run without a processor (Linux,
    /proc/PID/task/TID/schedstat); of a zombie too."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except OSError:  # the thread has ended
            continue
    return found
