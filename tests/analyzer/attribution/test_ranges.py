"""Range paths of ops and launch calls on traces made by hand, and against slow references."""

from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.report import GAP_CLASSES, Attribution, Report
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of


def report_of(*events: Event, **keys: object) -> Report:
    return analyze(trace_of(*events, **keys)).report


def operator(start: int, end: int, name: str, *, tid: int = 1, **args: object) -> Event:
    return event("cpu_op", name, start, end, PID, tid, **args)


def rows_of(report: Report) -> list[tuple[str, int, str]]:
    return [(found.path, found.gpu_ops, found.kind) for found in report.ranges]


def test_paths_nest_and_repeat() -> None:
    report = report_of(
        span(0, 100, "decode_step_0"),
        span(10, 50, "layer.0"),
        span(20, 30, "attention"),
        span(100, 200, "decode_step_1"),
        span(110, 150, "layer.0"),
        span(120, 130, "attention"),
        call(21, 22, 1),
        op(25, 60, 1),
        call(31, 32, 2),
        op(50, 80, 2),
        call(121, 122, 3),
        op(125, 135, 3),
        call(90, 91, 4),
        op(500, 600, 4),
    )
    rows = {r.path: (r.gpu_ns, r.gpu_ops, r.launch_calls) for r in report.ranges}
    assert rows == {
        "decode_step": (165, 4, 4),
        "decode_step/layer.0": (65, 3, 3),
        "decode_step/layer.0/attention": (45, 2, 2),
    }
    assert {r.confidence for r in report.ranges} == {"exact"}
    assert [r.path for r in report.ranges] == list(rows)


def test_a_graph_replay_has_no_ranges_below_its_launch() -> None:
    report = report_of(
        span(0, 100, "decode_step"),
        call(5, 9, 1, name="cudaGraphLaunch"),
        op(10, 20, 1),
        op(30, 40, 1),
        call(50, 51, 2),
        op(60, 70, 2),
    )
    rows = [(r.path, r.gpu_ns, r.gpu_ops, r.launch_calls, r.confidence) for r in report.ranges]
    assert rows == [
        ("decode_step", 30, 3, 2, "exact"),
        ("decode_step/(graph replay)", 20, 2, 1, "none"),
    ]


def test_ranges_of_other_threads_do_not_count() -> None:
    report = report_of(span(0, 100, "forward", tid=2), call(5, 6, 1, tid=1), op(10, 20, 1))
    assert report.ranges == ()


def slow_paths(
    spans: list[tuple[int, int, int]], calls: list[tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """GPU ns and ops of every path: an op of 1 ns for each call, at a time of its own."""
    found: dict[str, set[int]] = {}
    ordered = sorted(spans, key=lambda s: (s[0], -s[1]))
    for number, (at, tid) in enumerate(calls):
        around = [s for s in ordered if s[2] == tid and s[0] <= at < s[1]]
        for depth in range(len(around)):
            path = "/".join(f"r{s[0]}-{s[1]}" for s in around[: depth + 1])
            found.setdefault(path, set()).add(number)
    return {path: (len(numbers), len(numbers)) for path, numbers in found.items()}


@st.composite
def nested_spans(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    spans: set[tuple[int, int, int]] = set()

    def fill(start: int, end: int, tid: int, depth: int) -> None:
        at = start
        while at < end and depth < 4 and draw(st.booleans()):
            left = draw(st.integers(at, end - 1))
            right = draw(st.integers(left + 1, end))
            spans.add((left, right, tid))
            fill(left, right, tid, depth + 1)
            at = right

    for tid in (1, 2):
        fill(0, 60, tid, 0)
    return sorted(spans)


@given(
    nested_spans(),
    st.lists(st.tuples(st.integers(0, 62), st.integers(1, 2)), min_size=1, max_size=12),
)
@settings(max_examples=50, deadline=None)
def test_ranges_match_a_slow_reference(
    spans: list[tuple[int, int, int]], calls: list[tuple[int, int]]
) -> None:
    events = [span(start, end, f"r{start}-{end}", tid=tid) for start, end, tid in spans]
    for number, (at, tid) in enumerate(calls):
        events += [
            call(at, at, number + 1, tid=tid),
            op(100 + 3 * number, 101 + 3 * number, number + 1),
        ]
    report = report_of(*events)
    found = {r.path: (r.gpu_ns, r.gpu_ops) for r in report.ranges}
    assert found == slow_paths(spans, calls)


def test_generated_codes_own_annotations_are_left_out_of_paths() -> None:
    report = report_of(
        span(0, 100, "decode_step"),
        span(10, 90, "model"),
        span(20, 80, "## Call CompiledFxGraph fev2nedifuzc ##"),
        span(30, 60, "inner"),
        call(25, 26, 1),
        op(125, 126, 1),
        call(35, 36, 2),
        op(135, 136, 2),
    )
    assert [path for path, _, _ in rows_of(report)] == [
        "decode_step",
        "decode_step/model",
        "decode_step/model/inner",
    ]


def test_operators_stand_in_where_the_host_opened_no_range() -> None:
    outside = [
        operator(0, 50, "Torch-Compiled Region: 0/0"),
        operator(5, 20, "aten::linear"),
        operator(6, 18, "aten::mm"),
        operator(30, 40, "triton_poi_fused_0"),
        operator(60, 80, "CompiledFunction"),
        call(7, 8, 1),
        op(300, 310, 1),
        call(31, 32, 2),
        op(320, 330, 2),
        call(61, 62, 3),
        op(340, 350, 3),
        call(90, 91, 7),
        op(420, 430, 7),
    ]
    step = [
        span(100, 200, "ProfilerStep#3"),
        operator(110, 130, "aten::add"),
        span(140, 180, "attention"),
        operator(145, 160, "aten::mm"),
        call(111, 112, 4),
        op(360, 370, 4),
        call(146, 147, 5),
        op(380, 390, 5),
        call(190, 191, 6),
        op(400, 410, 6),
    ]
    report = report_of(*outside, *step)
    assert rows_of(report) == [
        ("ProfilerStep", 3, "range"),
        ("ProfilerStep/aten::add", 1, "operator"),
        ("ProfilerStep/attention", 1, "range"),
    ]
    assert report.attribution == Attribution(exact=6, partial=0, none=1)
    assert rows_of(report_of(*outside)) == [
        ("CompiledFunction", 1, "operator"),
        ("aten::linear", 1, "operator"),
        ("triton_poi_fused_0", 1, "operator"),
    ]


def test_operators_of_other_threads_do_not_count() -> None:
    report = report_of(operator(0, 50, "aten::mm", tid=2), call(5, 6, 1), op(10, 20, 1))
    assert report.ranges == ()
    assert report.attribution == Attribution(exact=0, partial=0, none=1)


def test_an_op_without_a_known_call_goes_by_its_external_id() -> None:
    ids = [{"External id": number} for number in range(6)]
    report = report_of(
        operator(0, 50, "aten::linear", **ids[1]),
        operator(5, 20, "aten::mm", **ids[2]),
        span(100, 200, "outer"),
        span(110, 150, "layer.0"),
        operator(120, 130, "aten::mul", **ids[3]),
        operator(160, 161, "twice", **ids[4]),
        operator(165, 166, "twice", **ids[4]),
        op(300, 310, 77, **ids[2]),
        op(320, 330, 78, **ids[3]),
        op(340, 350, 79, **ids[4]),
        op(360, 370, 80, **ids[5]),
        call(170, 171, 1, tid=9),
        op(380, 390, 1, **ids[1]),
    )
    rows = [(r.path, r.gpu_ops, r.launch_calls, r.kind) for r in report.ranges]
    assert rows == [
        ("aten::linear", 2, 1, "operator"),
        ("outer", 1, 0, "range"),
        ("outer/layer.0", 1, 0, "range"),
    ]
    assert report.attribution == Attribution(exact=3, partial=0, none=2)


def test_ranges_of_a_cpu_capture_go_by_the_operators_start() -> None:
    capture = {
        "device": "cpu",
        "device_name": "test",
        "model": "m",
        "weights": "bundled",
        "variant": "v",
        "dtype": "fp32",
        "batch": 1,
        "context": 1,
        "position": 1,
        "steps": 1,
        "bytes_per_step": 1,
        "unprofiled_step_ns": None,
        "decodescope_version": "0",
    }
    report = report_of(
        span(0, 100, "decode_step"),
        span(10, 50, "layer.0"),
        operator(12, 20, "aten::mm"),
        operator(60, 70, "aten::argmax"),
        operator(110, 120, "aten::add"),
        decodescope=capture,
    )
    assert rows_of(report) == [
        ("decode_step", 2, "range"),
        ("decode_step/aten::argmax", 1, "operator"),
        ("decode_step/layer.0", 1, "range"),
    ]


@given(
    nested_spans(),
    st.lists(
        st.tuples(
            st.integers(0, 62),
            st.integers(1, 2),
            st.integers(60, 150),
            st.integers(0, 9),
            st.integers(0, 1),
            st.integers(7, 8),
        ),
        min_size=1,
        max_size=14,
    ),
)
@settings(max_examples=50, deadline=None)
def test_busy_and_idle_of_every_range_match_a_slow_reference(
    spans: list[tuple[int, int, int]], ops: list[tuple[int, int, int, int, int, int]]
) -> None:
    events = [span(start, end, f"r{start}-{end}", tid=tid) for start, end, tid in spans]
    for number, (at, tid, start, length, device, stream) in enumerate(ops):
        events += [
            call(at, at, number + 1, tid=tid, name=f"launch{number}"),
            op(start, start + length, number + 1, device=device, stream=stream),
        ]
    analysis = analyze(trace_of(*events))
    trace, gaps, parts = analysis.trace, analysis.gaps, analysis.parts
    called = {
        name: ops[int(name.removeprefix("launch"))][:2]
        for name in trace.names
        if name.startswith("launch")
    }
    around = [called[trace.names[trace.calls.name[one]]] for one in trace.ops.launch]
    paths = [slow_path(spans, *one) for one in around]
    for row in analysis.report.ranges:
        mine = [k for k, path in enumerate(paths) if (path + "/").startswith(row.path + "/")]
        busy = {
            (trace.ops.device[k], t)
            for k in mine
            for t in range(trace.ops.start_ns[k], trace.ops.end_ns[k])
        }
        assert (row.gpu_ops, row.gpu_ns) == (len(mine), len(busy))
        assert row.attributed_ns == analysis.attributed_ns[mine].sum()
        idle = dict.fromkeys(GAP_CLASSES, 0)
        for part in range(len(parts)):
            if gaps.next[parts.gap[part]] in mine:
                idle[GAP_CLASSES[parts.kind[part]]] += parts.end_ns[part] - parts.start_ns[part]
        assert row.gaps == {name: ns for name, ns in idle.items() if ns}
        assert row.idle_ns == sum(idle.values())
    tops = [row for row in analysis.report.ranges if "/" not in row.path]
    ranged = [k for k in range(len(gaps)) if paths[gaps.next[k]]]
    assert sum(row.idle_ns for row in tops) == (gaps.end_ns - gaps.start_ns)[ranged].sum()


def slow_path(spans: list[tuple[int, int, int]], at: int, tid: int) -> str:
    ordered = sorted(spans, key=lambda s: (s[0], -s[1]))
    return "/".join(f"r{s[0]}-{s[1]}" for s in ordered if s[2] == tid and s[0] <= at < s[1])
