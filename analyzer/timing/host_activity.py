"""What a host thread was in at a given time: its ranges, the deepest operator, the CUDA call."""

from decodescope.analyzer.attribution.range_names import path_part
from decodescope.analyzer.schema.report import HostActivity
from decodescope.analyzer.trace import HostEvents, Trace


def host_activity(trace: Trace, at_ns: int, pid: int, tid: int) -> HostActivity:
    """The thread's open ranges as a path, its deepest operator and its CUDA call at `at_ns`.

    An event is open from its start until just before its end. Of nested calls (a driver call
    below a runtime call) the outermost counts: it is the one that the program made. Looks through
    all host events up to that time, so it is for the few gaps that are listed.
    """
    parts = (path_part(name) for name in _open(trace, trace.ranges, at_ns, pid, tid))
    operators = _open(trace, trace.cpu_ops, at_ns, pid, tid)
    calls = _open(trace, trace.calls, at_ns, pid, tid)
    return HostActivity(
        range="/".join(part for part in parts if part is not None) or None,
        operator=operators[-1] if operators else None,
        call=calls[0] if calls else None,
    )


def _open(trace: Trace, events: HostEvents, at_ns: int, pid: int, tid: int) -> list[str]:
    """Names of the thread's open events, outermost first."""
    begun = int(events.start_ns.searchsorted(at_ns, side="right"))
    is_open = (
        (events.end_ns[:begun] > at_ns) & (events.tid[:begun] == tid) & (events.pid[:begun] == pid)
    )
    return [trace.names[name] for name in events.name[:begun][is_open].tolist()]
