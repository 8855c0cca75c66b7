"""The tracks of one step, from its first op until the next step begins."""

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.names.rules import FAMILIES
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.tracks.build import step_tracks
from tests.helpers.kineto_events import call, op, span, trace_of


def two_steps() -> Analysis:
    return analyze(
        trace_of(
            span(0, 100, "decode_step"),
            span(100, 190, "decode_step"),
            call(5, 8, 1),
            op(20, 40, 1, name="a"),
            call(50, 52, 2),
            op(60, 75, 2, name="b"),
            call(105, 108, 3),
            op(120, 150, 3, name="a"),
            call(151, 155, 4),
            op(160, 175, 4, cat="gpu_memcpy"),
        )
    )


def test_a_step_lasts_until_the_next_one_begins_on_the_device() -> None:
    step = step_tracks(two_steps(), 0)
    assert (step.device, step.length_ns) == (0, 100)
    assert step.ops.start_ns.tolist() == [0, 40]
    assert step.ops.end_ns.tolist() == [20, 55]
    assert [step.names[name] for name in step.ops.label] == ["a", "b"]
    gaps = step.gaps.slices
    assert gaps.start_ns.tolist() == [20, 30, 32, 55, 85, 88]
    assert gaps.end_ns.tolist() == [30, 32, 40, 85, 88, 100]
    assert gaps.row.tolist() == [0, 0, 0, 1, 1, 1]
    names = ["host_wait", "launch_call", "launch_latency"] * 2
    assert [GAP_CLASSES[kind] for kind in gaps.kind] == names


def test_the_last_step_ends_with_its_ops() -> None:
    step = step_tracks(two_steps(), 1)
    assert step.length_ns == 55
    assert [FAMILIES[kind] for kind in step.ops.kind] == ["other", "copy"]


def test_only_a_step_that_launched_something_is_drawn() -> None:
    assert analyze(trace_of(span(0, 9, "decode_step"))).median_step is None
    assert analyze(trace_of(op(0, 9))).median_step is None


def test_a_step_of_ops_without_length_has_no_stream() -> None:
    analysis = analyze(trace_of(span(0, 9, "decode_step"), call(1, 2, 1), op(5, 5, 1)))
    step = step_tracks(analysis, 0)
    assert (step.length_ns, step.streams, len(step.gaps.slices)) == (0, (), 0)
