from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.timing.step_kinds import kinds_of, main_kind_steps
from decodescope.analyzer.timing.timeline import find_timeline
from decodescope.analyzer.views.report_table import report_table
from tests.helpers.kineto_events import PID, Event, call, op, span, trace_of
from tests.helpers.read_once import analysed_once, loaded_once
from tests.helpers.rich_report import text_of


def steps_of(*names: str, tid: int = 1) -> list[Event]:
    """Ranges of these names, 100 ns each; each launches one op, of 10, 20, … ns, 50 ns later."""
    events = []
    for index, name in enumerate(names):
        at = 100 * index
        events += [
            span(at, at + 100, name, tid=tid),
            call(at + 5, at + 6, index + 1, tid=tid),
            op(at + 50, at + 60 + 10 * index, index + 1),
        ]
    return events


def kinds(*events: Event) -> list[tuple[str, int, int | None, int | None, int | None]]:
    report = analyze(trace_of(*events)).report
    return [
        (row.kind, row.steps, row.batch, row.kv_tokens, row.query_tokens)
        for row in report.step_kinds
    ]


def _vllm(context: int, generation: int, kv_tokens: int) -> str:
    return (
        f"execute_9_context_{context}(sq{5 * context}sk{5 * context}sqsq0sqsk0)"
        f"_generation_{generation}(sq{generation}sk{kv_tokens}sqsq0sqsk0)"
    )


def test_one_row_for_each_kind_and_batch_with_the_lower_median_of_its_steps() -> None:
    names = [_vllm(0, 4, 400), _vllm(0, 4, 404), _vllm(1, 4, 408), _vllm(2, 0, 0), _vllm(0, 4, 420)]
    report = analyze(trace_of(*steps_of(*names, _vllm(0, 4, 500)))).report
    assert report.step_kinds == (
        StepKindReport("decode", 4, 4, 404, 4, 100, 100, 100, 4, 10 + 20 + 50 + 60),
        StepKindReport("mixed", 1, 5, 413, 9, 100, 100, 100, 1, 30),
        StepKindReport("prefill", 1, 2, 10, 10, 100, 100, 100, 1, 40),
    )
    assert msgspec.to_builtins(report)["step_kinds"][0]["kind"] == "decode"


def test_nested_annotations_of_two_engines_are_one_step() -> None:
    outer, inner = "execute_context_0(0)_generation_4(4)", "step[DECODE bs=3 g_sk=77]"
    both = steps_of(outer, outer)
    both += [span(2, 60, inner), span(104, 160, inner)]
    assert kinds(*both) == [("decode", 2, 4, 77, 4)]
    inside = [*steps_of(inner, inner), span(2, 60, outer)]
    assert kinds(*inside) == [("decode", 2, 3, 77, 3)]


def test_the_profilers_steps_take_their_kind_from_the_annotations_inside() -> None:
    events = steps_of("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3")
    events += [
        span(2, 90, "step[DECODE bs=3]"),
        span(102, 140, "step[DECODE bs=3]"),
        span(142, 180, "step[DECODE bs=5]"),
        span(202, 250, "step[DECODE bs=3]", tid=9),
    ]
    assert sorted(kinds(*events), key=str) == [
        ("decode", 1, 3, None, 3),
        ("decode", 1, None, None, None),
        ("unknown", 1, None, None, None),
    ]


def test_other_markers_are_of_unknown_kind_and_no_steps_have_no_kinds() -> None:
    assert kinds(*steps_of("step 1", "step 2")) == [("unknown", 2, None, None, None)]
    assert kinds(*steps_of("forward")) == []


def test_a_captures_steps_have_its_batch_and_position(repository: Path) -> None:
    trace = loaded_once(repository / "analyzer" / "recordings" / "h200-llama-3.2-1b-fused.dsrec")
    assert trace.capture is not None
    capture = replace(trace, capture=msgspec.structs.replace(trace.capture, batch=3, position=100))
    said = kinds_of(capture, analyze(capture).steps)
    assert [(one.kind, one.batch, one.kv_tokens) for one in said] == [
        ("decode", 3, 303),
        ("decode", 3, 306),
        ("decode", 3, 309),
    ]


def test_steps_of_a_cut_capture_have_its_batch_and_first_position(repository: Path) -> None:
    trace = loaded_once(repository / "analyzer" / "recordings" / "h200-llama-3.2-1b-fused.dsrec")
    assert trace.capture is not None
    more = msgspec.structs.replace(trace.capture, batch=3, position=100, steps=5)
    annotations = kinds_of(replace(trace, capture=more), analyze(trace).steps)
    known = [(one.kind, one.batch, one.kv_tokens) for one in annotations]
    assert known == [("decode", 3, 303)] * 3


def test_an_exported_capture_of_two_ranks_has_their_kv_lengths(
    repository: Path, tmp_path: Path
) -> None:
    """The export names the devices of the ranks, and has no labels of merged ones."""
    path = repository / "analyzer/recordings/h200x2-llama-3.1-8b-fused+graph.dsrec"
    whole, exported = analysed_once(path), tmp_path / "exported.json"
    export_chrome(whole, exported)
    again = analyze(load(exported)).report
    assert again.answer.limit_ns == whole.report.answer.limit_ns
    assert [step.kv_tokens for step in again.steps] == [
        step.kv_tokens for step in whole.report.steps
    ]


def test_a_step_of_vllm(foreign_traces: Path) -> None:
    report = analysed_once(foreign_traces / "mi300x_vllm_decode_graph.json.gz").report
    (row,) = report.step_kinds
    assert (row.kind, row.steps, row.batch, row.kv_tokens) == ("decode", 1, 32, 55_086)
    codes = [finding.code for finding in report.health.findings]
    assert codes == ["coarse_timestamps", "model_guessed"]
    assert report.health.status == "ok"
    assert report.devices[0].kernel_floor_ns is None


def _decode(batch: int) -> str:
    return f"step[DECODE bs={batch}]"


def main_steps(*events: Event) -> list[int]:
    timeline = find_timeline(trace_of(*events))
    return main_kind_steps(timeline.steps, timeline.step_annotations).tolist()


@pytest.mark.parametrize(
    ("names", "main"),
    [
        # A prefill among decodes; the batch that most decode steps have.
        (["step[EXTEND bs=9 toks=9]", _decode(3), _decode(2), _decode(3)], [1, 3]),
        # Decode steps decide, however few they are.
        (["step[EXTEND bs=1 toks=9]"] * 3 + [_decode(2)], [3]),
        # Without decode steps, all steps of the most frequent kind, whatever their batch.
        (["step[EXTEND bs=1 toks=9]", "step[MIXED bs=2]", "step[EXTEND bs=4 toks=9]"], [0, 2]),
        (["step 1", "step 2"], [0, 1]),
        ([], []),
    ],
)
def test_the_main_kind_is_decode_or_the_most_frequent(names: list[str], main: list[int]) -> None:
    assert main_steps(*steps_of(*names)) == main


def test_a_step_that_launched_nothing_is_none_of_the_main_kind_unless_all_are() -> None:
    marks = [span(1000, 1100, _decode(3)), span(1100, 1200, _decode(3))]
    launching = steps_of(_decode(2))
    assert main_steps(*launching, *marks) == [0]
    assert [row[:3] for row in kinds(*launching, *marks)] == [("decode", 1, 2)]
    assert main_steps(*marks) == [0, 1]


def launching(numbers: list[int], name: str = "k", mark: str = "step[DECODE bs=8]") -> list[Event]:
    """A step of 1,000 ns for each number, which launches as many ops of 10 ns by one call."""
    events = []
    for index, number in enumerate(numbers):
        at = 1_000 * index
        events += [span(at, at + 90, mark), call(at + 5, at + 6, index + 1)]
        events += [
            op(at + 100 + 20 * k, at + 110 + 20 * k, index + 1, name=name) for k in range(number)
        ]
    return events


def test_steps_of_two_models_are_of_two_sorts() -> None:
    report = analyze(trace_of(*launching([30, 12, 31, 12, 31, 12]))).report
    rows = [(row.kind, row.batch, row.steps, row.gpu_ops) for row in report.step_kinds]
    assert rows == [("decode", 8, 3, 92), ("decode", 8, 3, 36)]
    assert (report.answer.steps, report.main_steps.gpu_ops) == (3, 92)
    assert "set apart: 3 decode steps of 12 ops" in " ".join(text_of(report_table(report)).split())
    (message,) = [one.message for one in report.health.findings if one.code == "unlike_steps"]
    assert "(3 of 31 ops, 3 of 12 ops)" in message
    assert report.health.status == "ok"


@pytest.mark.parametrize("numbers", [[30, 21, 30], [1, 10, 1], [3, 9]])
def test_steps_that_differ_by_few_ops_are_alike(numbers: list[int]) -> None:
    report = analyze(trace_of(*launching(numbers))).report
    assert report.answer.steps == len(numbers)
    assert not report.health.findings


def test_steps_of_two_processes_on_one_gpu_are_apart() -> None:
    other = [event | {"pid": 77} for event in launching([5, 5]) if event["cat"] != "kernel"]
    for event in other[1::2]:
        event["args"] = {"correlation": event["args"]["correlation"] + 100}
    ops = [op(at + 500, at + 510, at // 1_000 + 101, stream=9) for at in (0, 1_000)]
    report = analyze(trace_of(*launching([5, 5, 5]), *other, *ops)).report
    assert [(row.kind, row.steps) for row in report.step_kinds] == [("decode", 3), ("decode", 2)]
    assert report.answer.steps == 3
    assert "set apart: 2 decode steps of 1 op (" in text_of(report_table(report))
    (message,) = [one.message for one in report.health.findings if one.code == "unlike_steps"]
    assert f"share a device (3 of process {PID}, 2 of process 77)" in message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("paged_attention_v2_kernel", "decode"),
        ("flash_fwd_kernel", "unknown"),
        ("flash_bwd_decode_kernel", "unknown"),
    ],
)
def test_the_work_of_marked_steps_tells_a_kind_that_no_mark_tells(name: str, kind: str) -> None:
    events = launching([2, 2, 2], name, "ProfilerStep#1")
    assert {row[0] for row in kinds(*events)} == {kind}
