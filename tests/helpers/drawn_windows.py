"""Windows of calls and ops as hypothesis draws them, on two devices, streams and threads.

The unit of time is not a whole microsecond: times in whole microseconds have no kernel floor.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze
from tests.helpers.kineto_events import Event, call, op, trace_of

US = 1001
APIS = {
    "cudaLaunchKernel": "other_api",
    "cudaGraphLaunch": "other_api",
    "cudaStreamWaitEvent": "other_api",
    "cudaStreamSynchronize": "sync",
    "cudaMalloc": "allocation",
    "cudaMemcpyAsync": "memcpy_api",
}


@dataclass(frozen=True)
class Op:
    start: int
    end: int
    correlation: int
    stream: int
    device: int


@dataclass(frozen=True)
class Call:
    start: int
    end: int
    correlation: int
    name: str
    tid: int


def analysed(ops: list[Op], calls: list[Call], *more: Event) -> Analysis:
    events: list[Event] = [
        op(o.start, o.end, o.correlation, stream=o.stream, device=o.device) for o in ops
    ]
    events += [call(c.start, c.end, c.correlation, name=c.name, tid=c.tid) for c in calls]
    return analyze(trace_of(*events, *more))


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Op], list[Call]]:
    """Calls at distinct starts and ids, ops on two devices and streams, all in units of `US`. No op
    is empty: the reader leaves kernels of no length out."""
    count = draw(st.integers(1, 12))
    starts = draw(st.lists(st.integers(0, 150), min_size=count, max_size=count, unique=True))
    calls = [
        Call(
            start=start * US,
            end=(start + draw(st.integers(0, 8))) * US,
            correlation=number + 1,
            name=draw(st.sampled_from(sorted(APIS))),
            tid=draw(st.integers(1, 2)),
        )
        for number, start in enumerate(starts)
    ]
    ops = []
    for start in draw(st.lists(st.integers(0, 260), min_size=2, max_size=14)):
        ops.append(
            Op(
                start=start * US,
                end=(start + draw(st.integers(1, 20))) * US,
                correlation=draw(st.integers(1, count + 2)),
                stream=draw(st.integers(7, 8)),
                device=draw(st.integers(0, 1)),
            )
        )
    launchers = {"cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync"}
    ids = {c.correlation for c in calls if c.name not in launchers}
    ops = [o for o in ops if o.correlation not in ids]
    return list(dict.fromkeys(ops)), calls
