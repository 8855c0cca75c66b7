"""The Kineto reader: every variety of file, read exactly."""

import json
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kineto.stream import EventStream
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.trace import CPU_DEVICE, CPU_OPERATOR, KERNEL, MEMCPY, MEMSET, Trace
from tests.helpers.kineto_events import (
    DATA,
    PID,
    RECORDED,
    call,
    codes,
    document,
    event,
    op,
    read,
    span,
    trace_of,
)

ABSOLUTE_NS = 1_661_938_466_265_032_123


def test_absolute_times_keep_every_digit() -> None:
    trace = trace_of(
        call(ABSOLUTE_NS, ABSOLUTE_NS + 4_001, 9),
        op(ABSOLUTE_NS + 5_002, ABSOLUTE_NS + 7_005, 9),
    )
    assert trace.ops.start_ns.tolist() == [1_661_938_466_265_037_125]
    assert trace.ops.end_ns.tolist() == [1_661_938_466_265_039_128]
    assert trace.calls.end_ns.tolist() == [1_661_938_466_265_036_124]


def test_integer_microseconds_and_exponents() -> None:
    text = """{"traceEvents": [
      {"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1661938466265032,"dur":25},
      {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":1.5e3,"dur":2E-3}]}"""
    trace = read(text)
    assert trace.ops.start_ns.tolist() == [1_500_000, 1_661_938_466_265_032_000]
    assert (trace.ops.end_ns - trace.ops.start_ns).tolist() == [2, 25_000]


def test_base_time_and_device_names() -> None:
    trace = trace_of(
        op(0, 5),
        baseTimeNanoseconds=1_790_857_026_000_000_000,
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
    )
    assert trace.base_ns == 1_790_857_026_000_000_000
    assert trace.device_names == {0: "NVIDIA H200", 1: "NVIDIA H200"}


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("kernel", KERNEL),
        ("Kernel", KERNEL),
        ("gpu_memcpy", MEMCPY),
        ("Memcpy", MEMCPY),
        ("gpu_memset", MEMSET),
        ("Memset", MEMSET),
    ],
)
def test_categories_of_gpu_ops(category: str, kind: int) -> None:
    assert trace_of(op(0, 5, cat=category)).ops.kind.tolist() == [kind]


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime"])
def test_categories_of_calls(category: str) -> None:
    launch = event(category, "hipExtModuleLaunchKernel", 0, 2, PID, 1, correlation=5)
    trace = trace_of(launch, op(3, 9, 5))
    assert trace.ops.launch.tolist() == [0]


def test_gpu_user_annotations_never_count() -> None:
    trace = trace_of(
        op(10, 20), event("gpu_user_annotation", "decode_step", 0, 100, 0, 7, stream=7)
    )
    report = analyze(trace).report
    assert (report.devices[0].gpu_ops, report.devices[0].window_ns) == (1, 10)


def test_a_bare_list_is_a_trace() -> None:
    events = json.loads(document([op(0, 5)]))["traceEvents"]
    assert len(read(json.dumps(events)).ops) == 1


def test_metadata_may_come_first_and_last_and_hold_event_lists() -> None:
    inner = [{"ph": "X"}, {"ph": "X"}]
    before = {"notes": inner, "nested": {"traceEvents": inner}}
    text = json.dumps({**before, "traceEvents": [], "after": inner, "baseTimeNanoseconds": 7})
    body = document([op(0, 5), op(6, 8)])[: -len(b"]}")].split(b"[", 1)[1]
    trace = read(text.replace('"traceEvents": [], ', f'"traceEvents": [{body.decode()}], '))
    assert (len(trace.ops), trace.base_ns, trace.findings) == (2, 7, ())


def test_text_ids_join_within_their_thread_and_missing_ids_are_minus_one() -> None:
    trace = trace_of(
        event("user_annotation", "decode_step", 0, 100, "Spans", "loop"),
        event("cuda_runtime", "cudaLaunchKernel", 5, 6, "Spans", "loop", correlation="77"),
        event("kernel", "k", 10, 20, -1, "", correlation=77),
    )
    assert trace.ranges.tid[0] == trace.calls.tid[0] < -1
    assert trace.ops.device.tolist() == [-1]
    assert trace.ops.launch.tolist() == [0]
    assert analyze(trace).report.steps[0].gpu_ops == 1


def test_graph_ids_and_external_ids() -> None:
    trace = trace_of(
        op(0, 5, 3, **{"graph id": 4, "graph node id": (4 << 32) | 9, "External id": 11}),
        op(6, 8, 3, **{"external id": 12}),
    )
    assert trace.ops.graph_id.tolist() == [4, -1]
    assert trace.ops.graph_node_id.tolist() == [(4 << 32) | 9, -1]
    assert trace.ops.external_id.tolist() == [11, 12]


def test_duplicate_correlations_go_to_the_last_call_before_the_op() -> None:
    trace = trace_of(
        call(0, 2, 5),
        call(100, 102, 5),
        call(200, 202, 5),
        op(10, 20, 5),
        op(150, 160, 5),
        op(-5, -2, 5),
    )
    starts = trace.calls.start_ns[trace.ops.launch].tolist()
    assert starts == [0, 0, 100]
    assert codes(trace) == {"duplicate_correlation"}


def test_a_driver_call_inside_its_runtime_call_is_passed_over() -> None:
    inner = event("cuda_driver", "cuLaunchKernel", 1, 3, PID, 1, correlation=5)
    trace = trace_of(call(0, 4, 5), inner, op(10, 20, 5))
    assert trace.names[trace.calls.name[trace.ops.launch[0]]] == "cudaLaunchKernel"
    assert codes(trace) == set()


def test_correlation_zero_links_nothing() -> None:
    assert trace_of(call(0, 4, 0), op(10, 20, 0)).ops.launch.tolist() == [-1]


def test_the_order_of_events_does_not_matter() -> None:
    events = [
        span(0, 100, "decode_step"),
        call(1, 3, 1),
        call(4, 6, 2),
        op(5, 9, 1),
        op(5, 9, 2),
        op(5, 12, 3, name="other"),
    ]
    forwards, backwards = trace_of(*events), trace_of(*reversed(events))
    assert forwards.names == backwards.names
    for column in ("start_ns", "end_ns", "name", "correlation", "launch"):
        assert getattr(forwards.ops, column).tolist() == getattr(backwards.ops, column).tolist()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dur", "NaN"),
        ("dur", "-5"),
        ("dur", "-0.001"),
        ("dur", "null"),
        ("dur", '"soon"'),
        ("dur", "Infinity"),
        ("dur", "1e400"),
        ("ts", "NaN"),
        ("ts", "-Infinity"),
        ("ts", "null"),
        ("ts", "1e30"),
        ("ts", "[1]"),
        ("ts", None),
        ("dur", None),
    ],
)
def test_an_event_without_usable_times_is_dropped_and_counted(
    field: str, value: str | None
) -> None:
    good, bad = document([op(0, 5), op(10, 20)]).decode().rsplit("{", 2)[0], ""
    fields = {"ts": "0.010", "dur": "0.010"}
    if value is None:
        del fields[field]
    else:
        fields[field] = value
    times = ", ".join(f'"{key}": {text}' for key, text in fields.items())
    bad = f'{{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,{times}}}'
    trace = read(f"{good}{bad}]}}")
    assert len(trace.ops) == 1
    assert codes(trace) == {"dropped_events"}
    assert "1 events" in trace.findings[0].message
    assert analyze(trace).report.health.status == "degraded"


def test_nan_in_an_argument_costs_nothing() -> None:
    text = document([op(0, 5, 1, occupancy=float("nan")), op(6, 9, 2, occupancy=float("inf"))])
    assert b"NaN" in text
    trace = read(text)
    assert (len(trace.ops), trace.findings) == (2, ())


@pytest.mark.parametrize("token", ["nan", "-nan", "inf", "-inf", "NaN", "-nan(ind)", "INF"])
def test_bare_words_of_c_streams_are_blanked(token: str) -> None:
    name = 'k\\": nan, inf'
    many = [op(2 * i, 2 * i + 1, i, name=name, occupancy="@@") for i in range(9)]
    text = document(many).replace(b'"@@"', token.encode())
    trace = read(text[:-1] + f', "scale": {token}, "baseTimeNanoseconds": 5}}'.encode())
    assert (len(trace.ops), trace.findings, trace.base_ns) == (9, (), 5)
    assert trace.names == (name,)
    without_times = text.replace(b'"ts": 0.000', b'"ts": ' + token.encode())
    assert codes(read(without_times)) == {"dropped_events"}


def test_entries_that_are_no_events_are_counted() -> None:
    trace = read(
        '{"traceEvents": [null, 5, [{"ph":"X"}], {"ph":"X","cat":"kernel","ts":1,"dur":2}]}'
    )
    assert len(trace.ops) == 1
    assert codes(trace) == {"no_events"}


def test_a_trailing_comma_is_forgiven() -> None:
    trace = read(document([op(0, 5)])[:-2] + b",\n]}")
    assert (len(trace.ops), trace.findings) == (1, ())


def test_bytes_that_are_no_utf8_spoil_only_the_name() -> None:
    trace = read(document([op(0, 5, name="k\xe9")]).replace(b"k\\u00e9", b"k\xe9\xff"))
    assert trace.names == ("k\ufffd\ufffd",)


def test_lone_surrogates_can_be_encoded_again() -> None:
    trace = read(
        '[{"ph":"X","cat":"kernel","name":"\\ud800k","ts":1,"dur":NaN},'
        '{"ph":"X","cat":"kernel","name":"\\ud800k","ts":1,"dur":2}]'
    )
    assert trace.names == ("\ufffdk",)


def test_profiler_overhead_is_reported_and_harmless() -> None:
    trace = trace_of(op(0, 5, 1), call(0, 1, 1), event("overhead", "Flush", 0, 2_500_000, -1, 0))
    assert "1 pauses of its own, 2.500 ms" in trace.findings[0].message
    assert analyze(trace).report.health.status == "ok"


def fast_and_careful(events: list[dict[str, object]]) -> tuple[Trace, Trace]:
    text = document(events)
    careful = text.replace(b'"traceEvents": [', b'"traceEvents": [{"ph":"X","pid":NaN},')
    return read(text), read(careful)


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**12), 10**18),
            st.integers(0, 10**12),
            st.integers(-3, 2**40),
            st.text(max_size=20),
        ),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_both_paths_read_the_same(rows: list[tuple[int, int, int, str]]) -> None:
    events = [
        op(start, start + dur, c, name=name or "k", cat="gpu_memcpy")
        for start, dur, c, name in rows
    ]
    fast, careful = fast_and_careful(events)
    assert fast.names == careful.names
    for column in ("start_ns", "end_ns", "name", "correlation", "stream", "device"):
        assert getattr(fast.ops, column).tolist() == getattr(careful.ops, column).tolist()
    expected = sorted((start, start + dur) for start, dur, _, _ in rows)
    assert list(zip(fast.ops.start_ns.tolist(), fast.ops.end_ns.tolist(), strict=True)) == expected


class SmallPieces(ByteSource):
    """Hands out its bytes a few at a time, so that every cut falls somewhere awkward."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(BytesIO(b""), "pieces.json")
        self._data, self._size = data, size

    def read(self) -> bytes:
        piece, self._data = self._data[: self._size], self._data[self._size :]
        return piece


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 501, 4096])
def test_any_chunking_gives_the_same_events(size: int) -> None:
    nasty = 'a},\n  {"ph": "X", "b": [{"x": 1}, {"y": 2}], "q": "\\"}, {'
    events = [op(i, i + 1, i, name=nasty, list=[{"a": {}}, {"b": nasty}]) for i in range(60)]
    stream = EventStream(SmallPieces(document(events, tail=[{"z": 1}, {"z": 2}]), size))
    found = [event for batch in stream.batches() for event in batch]
    assert [event.name for event in found] == [nasty] * 60
    assert [bytes(event.ts) for event in found] == [b"0.%03d" % i for i in range(60)]
    assert not stream.truncated
    assert stream.broken_at is None


def test_the_recorded_cpu_window() -> None:
    trace = load(DATA / "cpu_two_blocks.json.gz")
    assert isinstance(trace.capture, CaptureInfo)
    assert trace.on_cpu
    assert set(trace.ops.device.tolist()) == {CPU_DEVICE}
    assert set(trace.ops.kind.tolist()) == {CPU_OPERATOR}
    report = analyze(trace).report
    (device,) = report.devices
    assert (device.device, device.name) == ("cpu", "test CPU")
    assert set(device.gaps) - {"host_wait"} == {n for n, t in device.gaps.items() if not t.count}
    assert device.gaps["host_wait"].total_ns == device.idle_ns
    assert device.host_wait["python"].total_ns == device.idle_ns
    kernels = {kernel.name: kernel.count for kernel in report.kernels}
    assert kernels == {
        "aten::addmm": 15,
        "aten::native_layer_norm": 6,
        "aten::add": 6,
        "aten::silu": 6,
        "aten::argmax": 3,
    }
    assert [step.gpu_ops for step in report.steps] == [12, 12, 12]
    paths = {found.path: found.gpu_ops for found in report.ranges}
    assert paths["decode_step/layer.1/mlp"] == 12
    assert paths["decode_step/lm_head"] == 3
    assert report.launches.calls == 0
    assert report.health.status == "ok"
    assert report.answer.bound == "unknown"
    assert "device: cpu" in report.answer.because[0]
    assert report.answer.unprofiled_step_ns == 150_000


@pytest.mark.parametrize("block", ["null", '"text"', '{"device": 3}', "{}", "[1]"])
def test_a_malformed_capture_block_is_ignored_with_a_finding(block: str) -> None:
    trace = read(document([op(0, 5)])[:-1] + f', "decodescope": {block}}}'.encode())
    assert trace.capture is None
    assert codes(trace) == {"bad_capture_info"}


@pytest.mark.parametrize("peak", ["NaN", "Infinity", "-1.0", "0", "1e300"])
def test_a_capture_block_with_a_peak_that_is_none_is_ignored_with_a_finding(peak: str) -> None:
    capture = json.loads(RECORDED[: RECORDED.index(b"schemaVersion") - 2].rstrip(b" \n,") + b"}")
    block = json.dumps(capture["decodescope"] | {"measured_peak_bytes_per_s": 12345})
    assert read(document([op(0, 5)])[:-1] + f', "decodescope": {block}}}'.encode()).capture
    block = block.replace("12345", peak)
    trace = read(document([op(0, 5)])[:-1] + f', "decodescope": {block}}}'.encode())
    assert trace.capture is None
    assert codes(trace) == {"bad_capture_info"}


def test_a_capture_called_cpu_that_holds_gpu_ops_is_read_as_a_gpu_trace() -> None:
    capture = json.loads(RECORDED[: RECORDED.index(b"schemaVersion") - 2].rstrip(b" \n,") + b"}")
    launches = [call(0, 1, 1), call(5, 40, 2, name="cudaStreamSynchronize"), call(41, 42, 3)]
    trace = trace_of(*launches, op(2, 4, 1), op(50, 60, 3), **capture)
    (device,) = analyze(trace).report.devices
    assert device.device == 0
    assert device.host_wait["sync"].count == 1


@pytest.mark.parametrize("ids", [(2.0, 7.0, 1.0), ("2.0", "7.00", "1.0"), (2, 7, 1)])
def test_ids_that_were_written_as_floats_are_whole_numbers(ids: tuple[object, ...]) -> None:
    device, stream, correlation = ids
    kernel = event(
        "kernel", "k", 20, 30, 0, 7, device=device, stream=stream, correlation=correlation
    )
    trace = trace_of(call(0, 5, 1), kernel)
    assert (trace.ops.device.tolist(), trace.ops.stream.tolist()) == ([2], [7])
    assert trace.ops.launch.tolist() == [0]
