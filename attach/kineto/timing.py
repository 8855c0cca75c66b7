"""How long libkineto takes, and how long it is waited for."""

from dataclasses import dataclass

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
    silent_s: float = 12.0
    trace_s: float = 10.0
    iterations_s: float = 60.0


LIBKINETO = Timing()
