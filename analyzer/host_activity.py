"""What a host thread was in at a given time: its ranges, the deepest operator, the CUDA call."""

from decodescope.analyzer.report import HostActivity
from decodescope.analyzer.trace import Trace


def host_activity(trace: Trace, at_ns: int, pid: int, tid: int) -> HostActivity:
    """The thread's open ranges as a path, its deepest operator and its CUDA call at `at_ns`.

    Brute force over the trace's host events, for the few gaps that are listed.
    """
    raise NotImplementedError
