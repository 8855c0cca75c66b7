"""A clock that runs what it is given once and reads times from a script."""

from collections.abc import Callable

Call = Callable[[], None]


class FakeClock:
    """`times` are handed out in order, again and again; `captured` counts graphs."""

    def __init__(self, *times: float) -> None:
        self._times = times
        self._next = 0
        self.captured = 0

    def capture(self, body: Call) -> Call:
        self.captured += 1
        return body

    def each_ns(self, call: Call, calls: int) -> list[float]:
        call()
        return [self._time() for _ in range(calls)]

    def mean_ns(self, call: Call, calls: int) -> float:
        call()
        return self._time()

    def _time(self) -> float:
        self._next += 1
        return self._times[(self._next - 1) % len(self._times)]
