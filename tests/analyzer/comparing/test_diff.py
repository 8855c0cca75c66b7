"""Two traces compared: what is timed, what is only counted, and what must be said."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.diff import diff_reports, has_unprofiled_times
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Change, Diff
from decodescope.analyzer.schema.interruption_report import InterruptionReport
from decodescope.analyzer.schema.report import Report, Source
from tests.helpers.comparison_reports import capture_of, range_of, step_of, window_of


def steps(*times_ns: int, **changes: object) -> Report:
    return window_of(
        [step_of(i, ns, {"host_wait": ns // 4}) for i, ns in enumerate(times_ns)], **changes
    )


def codes(diff: Diff) -> list[str]:
    return [finding.code for finding in diff.findings]


def test_profiled_steps_are_compared_if_nothing_else_was_timed() -> None:
    diff = diff_reports(steps(1000, 1010, 990), steps(500, 505, 495, 500))
    assert diff.pair.step_ns == Change(1000, 500)
    assert diff.pair.speed is not None
    assert diff.pair.speed.value == 2.0
    assert diff.pair.speed.verdict == "faster"
    assert diff.pair.speed.interval is not None
    assert 1.9 < diff.pair.speed.interval.low < 2 < diff.pair.speed.interval.high < 2.1
    assert codes(diff) == ["profiled_steps"]
    assert not has_unprofiled_times(diff)
    assert diff.pair.idle_ns["host_wait"] == Change(
        (250 + 252 + 247) / 3, (125 + 126 + 123 + 125) / 4
    )


def test_interrupted_steps_do_not_count() -> None:
    held = InterruptionReport(0, 463_000_000, "cudaEventSynchronize", "wait", "it waited", 0, 1)
    slow = steps(1000, 463_001_010, 990, interruptions=(held,))
    diff = diff_reports(slow, steps(500, 505, 495))
    assert diff.pair.step_ns == Change(995, 500)
    assert diff.pair.idle_ns["host_wait"].base == (250 + 247) / 2
    only = steps(463_001_010, interruptions=(msgspec.structs.replace(held, step=0),))
    assert diff_reports(only, steps(500)).pair.step_ns == Change(463_001_010, 500)


def test_a_step_takes_as_long_as_the_longer_of_host_and_gpu() -> None:
    base = window_of([step_of(0, 100, {}, host_ns=40), step_of(1, 100, {}, host_ns=160)])
    empty = step_of(2, 100, {}, host_ns=None, gpu_span_ns=None)
    other = window_of([step_of(0, 65, {}, gpu_span_ns=None), empty])
    assert diff_reports(base, other).pair.step_ns == Change(130, 65)


def test_two_steps_have_no_interval() -> None:
    speed = diff_reports(steps(10, 20), steps(10, 20, 30)).pair.speed
    assert speed is not None
    assert (speed.interval, speed.verdict) == (None, "unknown")
    assert "2 steps" in (speed.reason or "")


def test_unprofiled_times_take_precedence_over_profiled_ones() -> None:
    base = steps(2000, 2000, 2000, capture=capture_of(1000))
    other = steps(500, 500, 500, capture=capture_of(400))
    diff = diff_reports(base, other)
    assert diff.pair.step_ns == Change(1000, 400)
    assert diff.pair.speed is not None
    assert diff.pair.speed.value == 2.5
    assert diff.pair.speed.interval is None
    (finding,) = diff.findings
    assert finding.code == "observer_effect"
    assert "x4.000" in finding.message
    assert has_unprofiled_times(diff)
    one_side = diff_reports(base, steps(500, 500, 500, capture=capture_of(None)))
    assert one_side.pair.step_ns == Change(2000, 500)


def test_batches_are_compared_by_tokens_per_s() -> None:
    base = steps(1000, 1000, 1000, capture=capture_of(None))
    other = steps(2000, 2000, 2000, capture=capture_of(None, batch=4))
    diff = diff_reports(base, other)
    assert diff.pair.speed is not None
    assert diff.pair.speed.value == 2.0
    assert diff.pair.speed.interval is not None
    assert diff.pair.speed.interval.low == pytest.approx(2.0)
    (finding,) = (one for one in diff.findings if one.code == "different_workloads")
    assert "batch 1 against 4" in finding.message


def test_captures_with_impossible_values_are_compared_by_their_steps() -> None:
    base = steps(1000, 1000, 1000, capture=capture_of(0, batch=0))
    diff = diff_reports(base, steps(500, 500, 500, capture=capture_of(-7)))
    assert diff.pair.step_ns == Change(1000, 500)
    assert diff.pair.speed is not None
    assert diff.pair.speed.value == 2.0
    assert "batch 0 against 1" in diff.findings[0].message


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "tiny"), ("weights", "pretrained"), ("dtype", "fp16"), ("context", 512),
     ("device", "cpu"), ("device_name", "NVIDIA H100 80GB HBM3")],
)  # fmt: skip
def test_different_workloads_are_a_finding(field: str, value: object) -> None:
    base = steps(1, 2, 3, capture=capture_of(10))
    other = steps(1, 2, 3, capture=capture_of(10, **{field: value}))
    (finding,) = (f for f in diff_reports(base, other).findings if f.code == "different_workloads")
    assert f"against {value}" in finding.message
    variant = steps(1, 2, 3, capture=capture_of(10, variant="compiled"))
    assert "different_workloads" not in codes(diff_reports(base, variant))


def test_different_gpus_of_foreign_traces_are_a_finding() -> None:
    base = steps(1, 2, 3)
    device = msgspec.structs.replace(base.devices[0], name="Tesla V100")
    other = steps(1, 2, 3, devices=(device,))
    assert "different_workloads" in codes(diff_reports(base, other))
    assert "different_workloads" not in codes(diff_reports(base, base))


def test_traces_without_steps_are_compared_by_their_totals() -> None:
    whole = steps(1000, 1000, 1000)
    base = msgspec.structs.replace(whole, steps=(), ranges=(range_of("forward", 70),))
    other = msgspec.structs.replace(base, ranges=(range_of("forward", 60),))
    diff = diff_reports(base, other)
    assert diff.pair.speed is None
    assert diff.pair.busy_ns == Change(2250, 2250)
    assert diff.pair.idle_ns["host_wait"] == diff.pair.idle_ns["all"] == Change(750, 750)
    assert diff.pair.gpu_ops == Change(900, 900)
    assert [row.gpu_ns for row in diff.pair.ranges] == [Change(70, 60)]
    assert codes(diff) == ["whole_traces", "nothing_timed"]


def test_if_only_one_side_has_steps_the_other_is_unknown() -> None:
    base = steps(1000, 1000)
    other = msgspec.structs.replace(base, steps=())
    diff = diff_reports(base, other)
    assert diff.pair.busy_ns == Change(750, None)
    assert diff.pair.ranges == ()
    assert diff.pair.speed is None
    assert "steps_on_one_side" in codes(diff)
    assert "B has no step markers" in diff.findings[0].message


def test_a_trace_against_itself_shows_no_difference() -> None:
    same = steps(1000, 1100, 900, 1050)
    diff = diff_reports(same, same)
    assert diff.pair.speed is not None
    assert diff.pair.speed.verdict == "no_difference_shown"
    assert diff.pair.speed.value == 1.0


def test_recorded_windows_of_two_variants() -> None:
    by_name = {path.stem: analyze(load(path)).report for path in bundled_recordings()}
    eager, compiled = (
        next(report for name, report in by_name.items() if name.endswith(variant))
        for variant in ("eager", "compiled")
    )
    diff = diff_reports(eager, compiled)
    assert diff.pair.speed is not None
    assert diff.pair.speed.value > 2
    for side, report in (("base", eager), ("other", compiled)):
        classes = [getattr(diff.pair.idle_ns[name], side) for name in diff.pair.idle_ns]
        assert sum(classes[:-1]) == pytest.approx(classes[-1])
        top = [row for row in diff.pair.ranges if "/" not in row.path]
        ops = sum(getattr(row.gpu_ops, side) or 0 for row in top)
        assert ops == sum(step.gpu_ops for step in report.steps) / len(report.steps)


def test_the_json_round_trips(tmp_path: Path) -> None:
    named = Source(str(tmp_path / "a.json"), "kineto", 3)
    diff = diff_reports(steps(1, 2, 3, source=named), steps(2, 3, 4, capture=capture_of(7)))
    assert msgspec.json.decode(msgspec.json.encode(diff), type=Diff) == diff
    assert diff.pair.base == named.path
