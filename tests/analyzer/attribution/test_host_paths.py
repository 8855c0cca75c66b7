"""What a host thread was doing, against a slow search through all events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.attribution.range_tree import host_activity
from decodescope.analyzer.schema.report import HostActivity
from tests.helpers.kineto_events import PID, Event, call, event, span, trace_of


def operator(start: int, end: int, name: str, *, tid: int = 1) -> Event:
    return event("cpu_op", name, start, end, PID, tid)


def test_the_path_the_deepest_operator_and_the_outermost_call() -> None:
    trace = trace_of(
        span(0, 100, "decode_step_4"),
        span(10, 90, "model"),
        span(12, 80, "## Call CompiledFxGraph f7x ##"),
        span(15, 40, "layer.0"),
        operator(20, 38, "aten::linear"),
        operator(22, 36, "aten::mm"),
        call(25, 35, 1),
        call(27, 33, 1, name="cuLaunchKernel"),
        span(0, 100, "elsewhere", tid=2),
        operator(0, 100, "aten::copy_", tid=2),
    )
    assert host_activity(trace, 30, PID, 1) == HostActivity(
        "decode_step/model/layer.0", "aten::mm", "cudaLaunchKernel"
    )
    assert host_activity(trace, 37, PID, 1) == HostActivity(
        "decode_step/model/layer.0", "aten::linear", None
    )
    assert host_activity(trace, 95, PID, 1) == HostActivity("decode_step", None, None)
    assert host_activity(trace, 30, PID, 2) == HostActivity("elsewhere", "aten::copy_", None)
    for nowhere in ((100, PID, 1), (-1, PID, 1), (30, PID + 1, 1), (30, PID, 3)):
        assert host_activity(trace, *nowhere) == HostActivity(None, None, None)


pieces = st.lists(
    st.tuples(
        st.sampled_from(("user_annotation", "cpu_op", "cuda_runtime")),
        st.integers(0, 20),
        st.integers(0, 20),
        st.sampled_from((1, 2)),
    ),
    max_size=12,
)


@given(pieces, st.integers(-1, 41))
@settings(deadline=None)
def test_against_every_event(rows: list[tuple[str, int, int, int]], at: int) -> None:
    rows = [row for number, row in enumerate(rows) if row not in rows[:number]]
    events = [
        event(cat, f"{cat} {start} {length}", start, start + length, PID, tid)
        for cat, start, length, tid in rows
    ]
    trace = trace_of(*events)
    for tid in (1, 2):
        around: dict[str, list[str]] = {}
        for cat, start, length, thread in sorted(rows, key=lambda r: (r[1], -r[2])):
            if thread == tid and start <= at < start + length:
                around.setdefault(cat, []).append(f"{cat} {start} {length}")
        assert host_activity(trace, at, PID, tid) == HostActivity(
            "/".join(around.get("user_annotation", ())) or None,
            around.get("cpu_op", [None])[-1],
            around.get("cuda_runtime", [None])[0],
        )
