"""Events recorded before the first step marker count in no figure."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, call, document, event, op, span, trace_of

INFO = CaptureInfo(
    device="cuda",
    device_name="a GPU",
    model="tiny",
    weights="bundled",
    variant="compiled",
    dtype="bf16",
    batch=1,
    context=16,
    position=17,
    steps=2,
    bytes_per_step=123,
    unprofiled_step_ns=None,
    decodescope_version="0.0.0",
    lead_steps=1,
)
STEP_NS = 10_000


def step(begin: int, correlation: int, marker: str) -> list[Event]:
    """A step whose two kernels run two microseconds after the host has left it."""
    return [
        span(begin, begin + 8_000, marker),
        span(begin + 100, begin + 7_000, "model"),
        event("cpu_op", "aten::mm", begin + 200, begin + 6_000, 4242, 1),
        call(begin + 300, begin + 900, correlation),
        call(begin + 1_000, begin + 1_500, correlation + 1),
        op(begin + STEP_NS, begin + STEP_NS + 4_000, correlation),
        op(begin + STEP_NS + 4_500, begin + STEP_NS + 9_000, correlation + 1),
    ]


def window(lead_steps: int) -> list[Event]:
    markers = ["decode_lead"] * lead_steps + ["decode_step"] * 2
    return [
        one
        for number, marker in enumerate(markers)
        for one in step(number * STEP_NS, 1 + 2 * number, marker)
    ]


def captured(events: list[Event], lead_steps: int) -> Trace:
    info = msgspec.to_builtins(msgspec.structs.replace(INFO, lead_steps=lead_steps))
    return trace_of(*events, decodescope=info)


@pytest.mark.parametrize("lead_steps", [1, 2, 5])
def test_the_rest_is_the_trace_recorded_without_a_lead(lead_steps: int) -> None:
    trace = captured(window(lead_steps), lead_steps)
    alone = captured(window(0), 0)
    shift = lead_steps * STEP_NS
    assert (trace.ops.start_ns - shift).tolist() == alone.ops.start_ns.tolist()
    assert trace.ops.launch.tolist() == alone.ops.launch.tolist() == [0, 1, 2, 3]
    for columns in ("calls", "cpu_ops", "ranges"):
        found = (getattr(trace, columns).start_ns - shift).tolist()
        assert found == getattr(alone, columns).start_ns.tolist()
    report, expected = analyze(trace).report, analyze(alone).report
    for figures in ("devices", "steps", "ranges", "kernels", "launches", "answer"):
        assert getattr(report, figures) == getattr(expected, figures), figures


def test_the_device_window_begins_with_the_first_marked_step() -> None:
    device = analyze(captured(window(1), 1)).report.devices[0]
    # Kernels of 4,000 and 4,500 ns, 500 ns between them and 1,000 ns between the steps.
    assert (device.window_ns, device.idle_ns) == (19_000, 500 + 1_000 + 500)


def test_ops_of_the_lead_without_a_call_go_too() -> None:
    early, late = op(9_000, 9_500, 901), op(21_500, 21_600, 902)
    trace = captured([*window(1), early, late], 1)
    assert trace.ops.start_ns[trace.ops.launch < 0].tolist() == [21_500]
    assert len(trace.ops) == 5


@pytest.mark.parametrize(
    "info",
    [None, {"lead_steps": 0}, {}],
    ids=["foreign", "no lead", "older version"],
)
def test_other_traces_stay_whole(info: dict[str, Any] | None) -> None:
    keys: dict[str, Any] = {}
    if info is not None:
        described = msgspec.to_builtins(INFO)
        del described["lead_steps"]
        keys["decodescope"] = described | info
    trace = trace_of(*window(1), **keys)
    assert len(trace.ops) == 6
    assert len(trace.calls) == 6


def test_a_window_without_markers_stays_whole() -> None:
    events = [one for one in window(1) if one["name"] not in ("decode_lead", "decode_step")]
    assert len(captured(events, 1).ops) == 6


def on_cpu(described: dict[str, Any]) -> dict[str, Any]:
    return described | {"device": "cpu"}


def test_a_cpu_capture_loses_its_lead_as_well() -> None:
    events = [one for one in window(1) if one["cat"] in ("cpu_op", "user_annotation")]
    trace = trace_of(*events, decodescope=on_cpu(msgspec.to_builtins(INFO)))
    assert trace.ops.start_ns.tolist() == [10_200, 20_200]


@given(st.randoms(use_true_random=False))
def test_the_order_in_the_file_does_not_matter(random: Any) -> None:
    events = window(2)
    random.shuffle(events)
    info = msgspec.to_builtins(msgspec.structs.replace(INFO, lead_steps=2))
    trace = read_kineto_bytes(document(events, decodescope=info), "shuffled.json")
    assert trace.ops.launch.tolist() == [0, 1, 2, 3]
    starts = trace.calls.start_ns[trace.ops.launch]
    assert (starts >= 2 * STEP_NS).all()
