"""What a trace is: why it has no GPU op, graph captures, counted kernels, unknown categories."""

from pathlib import Path

import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from tests.analyzer.readers.test_foreign_traces import path_of
from tests.helpers.kineto_events import Event, call, event, op, span, trace_of

MTIA = [event("mtia_ccp_events", "fc-dtype_Float", i, i + 1, 9, 801) for i in range(30)]


def report_of(*events: Event, **keys: object) -> Report:
    return analyze(trace_of(*events, **keys)).report


def said(report: Report, code: str) -> str:
    (message,) = (one.message for one in report.health.findings if one.code == code)
    return message


def codes_of(report: Report) -> set[str]:
    return {finding.code for finding in report.health.findings}


def test_launches_whose_gpu_side_is_missing_are_counted_with_likely_causes() -> None:
    launches = [call(10 * i, 10 * i + 5, i + 1) for i in range(1200)]
    copies = [call(20000, 20005, 2000, name="cudaMemcpyAsync")]
    report = report_of(*launches, *copies, call(30000, 30001, name="cudaDeviceSynchronize"))
    message = said(report, "no_gpu_activity")
    assert report.health.status == "no_gpu_activity"
    assert "1,201 calls launch or copy (cudaLaunchKernel 1,200, cudaMemcpyAsync 1)" in message
    assert "was not recorded" in message
    assert "synchronize" in message


def test_a_host_that_launched_nothing_is_no_lost_record() -> None:
    report = report_of(call(0, 5, name="cudaMalloc"), call(6, 8, name="cudaStreamSynchronize"))
    message = said(report, "no_gpu_activity")
    assert message.endswith("none of its 2 API calls launches or copies anything")


def test_a_trace_of_the_host_names_the_option() -> None:
    operators = [event("cpu_op", "aten::mm", i, i + 1, 1, 1) for i in range(3)]
    message = said(report_of(*operators, span(0, 9, "step")), "no_gpu_activity")
    assert "3 operators and 1 range of the host only" in message
    assert message.endswith("record with ProfilerActivity.CUDA")


def test_events_of_another_accelerator_are_named_and_no_cuda_option_is() -> None:
    report = report_of(*MTIA, event("cpu_op", "aten::mm", 0, 1, 1, 1))
    assert "30 events of mtia_ccp_events (of the accelerator MTIA)" in said(
        report, "not_understood"
    )
    message = said(report, "no_gpu_activity")
    assert message.startswith("no op of a CUDA, ROCm or XPU device in this trace")
    assert "ProfilerActivity" not in message
    assert report.answer.next == ("give a trace of such a device",)


@pytest.mark.parametrize(("strange", "reported"), [(5, True), (4, False)])
def test_unknown_categories_are_named_where_they_are_a_relevant_share(
    strange: int, reported: bool
) -> None:
    """5 of 100 timed events; metadata, flows, counters and instants are not timed."""
    known = [op(10 * i, 10 * i + 5) for i in range(100 - strange)]
    others = [event(f"tool_{i}", "x", i, i + 1, 1, 1) for i in range(strange)]
    untimed = [{"ph": phase, "cat": "tool", "name": "x", "pid": 1, "ts": 1} for phase in "MsfCi"]
    report = report_of(*known, *others, *untimed * 50)
    assert ("not_understood" in codes_of(report)) == reported
    if reported:
        assert "1 events of tool_0, 1 events of tool_1" in said(report, "not_understood")
        assert "1 of 1 more categories" in said(report, "not_understood")
        assert report.health.status == "degraded"


def test_a_trace_of_which_nothing_is_understood_says_so() -> None:
    other = [
        {"ph": "B", "pid": 1, "tid": 1, "ts": 1, "name": "x"},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "b", "cat": "net", "id": 1, "pid": 1, "ts": 2, "name": "y"},
    ]
    report = report_of(*other)
    assert "1 events of (no category), 1 events of net (asynchronous)" in said(
        report, "not_understood"
    )
    assert said(report, "no_gpu_activity").endswith("nothing in it is understood")


BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
APIS = {
    "hip": (f"hip{BEGIN}", "hipModuleLaunchKernel", f"hip{END}"),
    "cuda": (f"cuda{BEGIN}_v10000", "cudaLaunchKernelExC_v11060", f"cuda{END}_v10000"),
    "driver": (f"cu{BEGIN}_v2", "cuLaunchKernel", f"cu{END}"),
}


def test_a_hostile_category_is_one_short_line() -> None:
    message = said(report_of(event("a\nb" + "x" * 10**5, "k", 0, 1, 1, 1)), "not_understood")
    assert "1 events of a bxxx" in message
    assert len(message) < 200


def test_a_trace_in_which_nothing_is_timed_names_its_phases() -> None:
    untimed = [{"ph": phase, "cat": "x", "name": "x", "pid": 1, "ts": 1} for phase in "CCCiM"]
    message = said(report_of(*untimed), "not_understood")
    assert "3 events of phase C, 1 events of phase i; the" in message


def capture(at: int, launches: int, first: int = 100, api: str = "hip") -> list[Event]:
    """A capture of `launches` kernels in 10 * launches + 20 ns."""
    begin, launch, end = APIS[api]
    return [
        call(at, at + 5, name=begin),
        *(
            call(at + 10 * i + 10, at + 10 * i + 15, first + i, name=launch)
            for i in range(launches)
        ),
        call(at + 10 * launches + 10, at + 10 * launches + 20, name=end),
    ]


@pytest.mark.parametrize("api", APIS)
def test_the_profile_of_a_graph_capture_is_one_and_says_so_first(api: str) -> None:
    """Two ops far apart and a capture between them would read as host-bound."""
    beside = [call(0, 5, 1), op(10, 20, 1), call(900, 905, 2), op(910, 920, 2)]
    steps = [span(0, 1000, "ProfilerStep#3")]
    report = report_of(*steps, *beside, *capture(100, 50, api=api))
    message = said(report, "graph_capture")
    assert message.startswith("the profile of 1 graph capture: 50 kernel launches were recorded")
    assert "2 GPU ops ran beside them" in message
    assert report.health.status == "degraded"
    assert "graph capture" in report.answer.because[0]
    assert report.answer.next == ("profile its replays, after the capture",)
    assert answer_lines(report).reasons[0].endswith(report.answer.because[0])
    without = report_of(*steps, *beside)
    assert without.answer.bound == "host"
    assert not any("capture" in text for text in (*without.answer.because, *without.answer.next))


@pytest.mark.parametrize(("launches", "reported"), [(14, True), (12, False)])
def test_a_capture_that_takes_a_relevant_part_of_the_window_is_reported(
    launches: int, reported: bool
) -> None:
    """Of a window of 1,000 ns with more ops than the capture recorded launches."""
    ran = [op(10 * i, 10 * i + 10, i + 1) for i in range(100)]
    calls = [call(i, i + 1, i + 1, tid=2) for i in range(100)]
    report = report_of(*ran, *calls, *capture(300, launches, first=500))
    assert ("graph_capture" in codes_of(report)) == reported
    if reported:
        assert "took 160 ns, 16.0% of the window: 14 kernel launches" in said(
            report, "graph_capture"
        )


@pytest.mark.parametrize("missing", [BEGIN, END])
def test_a_capture_cut_by_the_window_counts_as_far_as_it_shows(missing: str) -> None:
    cut = [one for one in capture(100, 5) if missing not in one["name"]]
    report = report_of(*cut, op(0, 10), op(900, 910))
    assert "1 graph capture: 5 kernel launches" in said(report, "graph_capture")
    assert "launches_without_ops" not in codes_of(report)


def test_a_capture_without_any_op_says_that_nothing_ran() -> None:
    message = said(report_of(*capture(0, 5)), "no_gpu_activity")
    assert message.endswith("its launches were recorded into graphs and ran nothing")


def test_kernels_that_were_counted_by_cupti_are_no_timed_ones() -> None:
    ranges = [event("cuda_profiler_range", "k", 100 * i, 100 * i + 100, 0, 0) for i in range(7)]
    report = report_of(*ranges, *(call(10 * i, 10 * i + 5, i + 1) for i in range(7)))
    assert said(report, "counted_kernels").startswith("7 kernels were counted by hardware counters")
    assert said(report, "no_gpu_activity").endswith("its kernels were counted, not timed")
    assert "not_understood" not in codes_of(report)


def test_no_figure_comes_from_kernels_without_a_duration() -> None:
    untimed = [op(1_000 * i, 1_000 * i, i + 1) for i in range(50)]
    calls = [call(1_000 * i, 1_000 * i + 5, i + 1) for i in range(50)]
    report = report_of(*untimed, *calls)
    assert said(report, "counted_kernels").startswith("none of the 50 GPU ops has a duration")
    assert report.devices == ()
    assert report.health.status == "no_gpu_activity"
    rounded = report_of(*untimed, *calls, op(60_000, 61_000, 99))
    assert rounded.devices[0].gpu_ops == 51
    assert report_of(*untimed[1:], *calls).devices[0].gpu_ops == 49


def test_an_error_that_the_profiler_logged_is_quoted_and_harmless() -> None:
    work = [call(0, 5, 1), op(10, 20, 1)]
    report = report_of(*work, ERROR=["CuptiActivityApi.cpp:1]\n failed " + "x" * 500, "two"])
    message = said(report, "profiler_errors")
    assert message.startswith("the profiler logged 2 errors: CuptiActivityApi.cpp:1] failed xxx")
    assert len(message) < 250
    assert report.health.status == "ok"


@pytest.mark.parametrize("named", [[], [{"id": 0, "name": "AMD"}, {"id": 1, "name": "AMD"}]])
def test_a_device_that_is_not_listed_is_one_of_those_that_are(named: list[object]) -> None:
    (device,) = report_of(op(0, 5, device=9), deviceProperties=named).devices
    assert device.name == ("AMD" if named else "")


def test_the_graph_capture_of_a_serving_engine_is_recognised(foreign_traces: Path) -> None:
    trace = load(path_of(foreign_traces, "mi300x_vllm_graph_capture"))
    report = analyze(trace).report
    assert "421 kernel launches were recorded into graphs" in said(report, "graph_capture")
    assert "graph capture" in report.answer.because[0]
