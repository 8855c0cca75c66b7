"""Two sides compared: step against step, what limits the comparison, and what must be said."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.comparability import work_differences
from decodescope.analyzer.comparing.diff import diff_reports, diff_sides
from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Change, Diff
from decodescope.analyzer.schema.report import Report, Source
from decodescope.analyzer.schema.step_report import StructureReport
from tests.helpers.comparison_reports import capture_of, range_of, step_of, window_of

TIMES = st.lists(st.integers(1, 2**40), min_size=1, max_size=8)
STEADY = (1_000_000, 1_004_000, 998_000, 1_001_000, 999_000, 1_002_000, 1_003_000, 997_000)


def steps(*times_ns: int, **changes: object) -> Report:
    return window_of(
        [step_of(i, ns, {"host_wait": ns // 4}) for i, ns in enumerate(times_ns)], **changes
    )


def scaled(factor: float, times_ns: tuple[int, ...] = STEADY, **changes: object) -> Report:
    return steps(*(round(ns * factor) for ns in times_ns), **changes)


def answering(report: Report, **changes: Any) -> Report:
    answer = msgspec.structs.replace(report.answer, **changes)
    return msgspec.structs.replace(report, answer=answer)


def message_of(diff: Diff, code: str) -> str:
    return next((finding.message for finding in diff.findings if finding.code == code), "")


def test_a_period_half_as_long_again_is_slower() -> None:
    """The GPU spans are the same: only the time until the next step begins is longer."""
    base = window_of([step_of(i, ns, {}, gpu_span_ns=900_000) for i, ns in enumerate(STEADY)])
    longer = window_of(
        [
            step_of(i, round(ns * 1.5), {}, gpu_span_ns=900_000, host_ns=900_000)
            for i, ns in enumerate(STEADY)
        ]
    )
    answer = diff_reports(base, longer).answer
    assert (answer.base_step_ns, answer.other_step_ns) == (1_000_000, 1_500_000)
    assert answer.ratio == 1.5
    assert answer.verdict == "slower"
    assert answer.interval is not None
    assert 1.48 < answer.interval.low < 1.5 < answer.interval.high < 1.52


@pytest.mark.parametrize("side", [0, 1])
def test_one_step_ten_times_as_slow_does_not_decide(side: int) -> None:
    sides = [list(STEADY), [round(ns * 1.5) for ns in STEADY]]
    sides[side][3] *= 10
    answer = diff_reports(*(steps(*times) for times in sides)).answer
    assert answer.ratio == pytest.approx(1.5, rel=0.003)
    assert answer.verdict == "slower"


@given(TIMES, TIMES)
@settings(max_examples=20, deadline=None)
def test_ratio_parts_and_step_times_agree(base: list[int], other: list[int]) -> None:
    answer = diff_reports(steps(*base), steps(*other)).answer
    assert answer.base_step_ns == sorted(base)[(len(base) - 1) // 2]
    assert answer.other_step_ns == sorted(other)[(len(other) - 1) // 2]
    assert answer.ratio == answer.other_step_ns / answer.base_step_ns
    changed_ns = sum(row.change_ns for row in answer.parts)
    assert changed_ns == answer.other_step_ns - answer.base_step_ns
    back = diff_reports(steps(*other), steps(*base)).answer
    assert back.ratio == pytest.approx(1 / answer.ratio)
    assert (answer.interval is None) == (min(len(base), len(other)) < 2)
    if answer.interval is not None and back.interval is not None:
        assert back.interval.low == pytest.approx(1 / answer.interval.high)
        mirror = {"slower": "faster", "faster": "slower"}
        assert back.verdict == mirror.get(answer.verdict, answer.verdict)
    negated = {row.part: -row.change_ns for row in back.parts}
    assert {row.part: row.change_ns for row in answer.parts} == negated


@given(TIMES)
@settings(max_examples=20, deadline=None)
def test_a_trace_against_itself_has_the_ratio_one(times: list[int]) -> None:
    diff = diff_reports(steps(*times), steps(*times))
    assert diff.answer.ratio == 1.0
    assert diff.answer.verdict in ("no_difference_shown", "unknown")
    assert not any(row.change_ns for row in diff.answer.parts)
    assert message_of(diff, "inconclusive").startswith("inconclusive: ") == (len(times) < 2)


def test_what_is_not_decided_says_how_many_more_steps_would() -> None:
    noisy = (1_000_000, 1_200_000, 900_000, 1_100_000, 950_000, 1_050_000)
    diff = diff_reports(steps(*noisy), scaled(1.1, noisy))
    assert diff.answer.verdict == "no_difference_shown"
    more = diff.answer.more_base
    assert more is not None
    assert 10 < more < 400
    assert f"about {more} more steps of A and {more} more steps of B" in message_of(
        diff, "inconclusive"
    )
    again = diff_reports(steps(*noisy * 40), scaled(1.1, noisy * 40))
    assert again.answer.verdict == "slower"
    assert (again.answer.more_base, message_of(again, "inconclusive")) == (None, "")


def test_a_single_step_has_no_interval() -> None:
    diff = diff_reports(steps(10), steps(10, 20, 30))
    answer = diff.answer
    assert (answer.interval, answer.verdict, answer.ratio) == (None, "unknown", 2.0)
    assert answer.reason == "A has 1 timed step: an interval needs at least 2 a side"
    assert (answer.more_base, answer.more_other) == (1, 0)
    assert message_of(diff, "inconclusive").endswith("about 1 more step of A would decide it")


def test_steps_of_other_kinds_and_interrupted_ones_do_not_count() -> None:
    slow = step_of(3, 463_001_010, {"host_wait": 463_000_000}, timed=False)
    base = steps(1000, 1010, 990)
    other = msgspec.structs.replace(base, steps=(*base.steps, slow))
    diff = diff_reports(base, other)
    assert diff.answer.ratio == 1.0
    assert [side.gpu_ops for side in sides_of(diff)] == [300, 300]


def test_unprofiled_times_stand_beside_the_step_ratio() -> None:
    base = steps(2000, 2000, 2000, capture=capture_of(1000))
    diff = diff_reports(base, steps(500, 500, 500, capture=capture_of(400)))
    assert (diff.answer.ratio, diff.answer.unprofiled_ratio) == (0.25, 0.4)
    one_side = diff_reports(base, steps(500, 500, 500, capture=capture_of(None)))
    assert (one_side.answer.ratio, one_side.answer.unprofiled_ratio) == (0.25, None)
    impossible = diff_reports(base, steps(500, 500, 500, capture=capture_of(0)))
    assert impossible.answer.unprofiled_ratio is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "tiny"),
        ("weights", "pretrained"),
        ("dtype", "fp16"),
        ("context", 512),
        ("device_name", "NVIDIA H100 80GB HBM3"),
        ("batch", 4),
    ],
)
def test_captures_of_different_work_are_not_judged(field: str, value: object) -> None:
    base = scaled(1, capture=capture_of(10))
    diff = diff_reports(base, scaled(12.5, capture=capture_of(10, **{field: value})))
    assert diff.answer.differences
    assert f"against {value}" in diff.answer.differences[0]
    assert (diff.answer.verdict, diff.answer.interval) == ("unknown", None)
    assert diff.answer.ratio == pytest.approx(12.5)
    assert f"against {value}" in message_of(diff, "different_workloads")
    assert message_of(diff, "inconclusive") == ""
    variant = diff_reports(base, scaled(12.5, capture=capture_of(10, variant="compiled")))
    assert variant.answer.verdict == "slower"


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        ({"kind": "decode"}, {"kind": "prefill"}, "decode steps against prefill steps"),
        ({"kind": "unknown"}, {"kind": "prefill"}, ""),
        ({"batch": 32}, {"batch": 8}, "batch 32 against 8"),
        ({"batch": 32}, {"batch": None}, ""),
        (
            {"model": "qwen3-8b"},
            {"model": "llama-3-8b", "model_source": "guessed"},
            "model qwen3-8b against llama-3-8b (guessed)",
        ),
        ({"model": "Qwen/Qwen3-8B"}, {"model": "qwen3-8b@random", "model_source": "guessed"}, ""),
        ({"model": "qwen3-8b"}, {"model": None}, ""),
    ],
)
def test_steps_of_different_work_are_not_judged(one: Any, two: Any, words: str) -> None:
    diff = diff_reports(answering(steps(9, 9, 9), **one), answering(steps(18, 18, 18), **two))
    assert diff.answer.differences == ((words,) if words else ())
    assert diff.answer.verdict == ("unknown" if words else "slower")


@pytest.mark.parametrize(
    ("layers", "confidence", "models", "words"),
    [
        (24, "exact", (None, None), ("layers 16 against 24",)),
        (24, "exact", (None, "qwen3-8b"), ("layers 16 against 24",)),
        (16, "exact", (None, None), ()),
        (24, "partial", (None, None), ()),
        (24, "exact", ("qwen3-8b", "qwen3-8b"), ()),
    ],
)
def test_models_that_nobody_knows_differ_by_their_layers(
    layers: int, confidence: Any, models: tuple[str | None, str | None], words: tuple[str, ...]
) -> None:
    base, other = (
        answering(steps(ns, ns, ns, structure=structure), model=model)
        for ns, model, structure in zip(
            (9, 18),
            models,
            (
                StructureReport("repetition", 16, 1, (9,), 1, "exact"),
                StructureReport("repetition", layers, 1, (9,), 1, confidence),
            ),
            strict=True,
        )
    )
    answer = diff_reports(base, other).answer
    assert answer.differences == words
    assert answer.verdict == ("unknown" if words else "slower")


def test_different_gpus_are_a_difference() -> None:
    base = steps(1000, 1000, 1000)
    device = msgspec.structs.replace(base.devices[0], name="Tesla V100")
    diff = diff_reports(base, steps(2000, 2000, 2000, devices=(device, device)))
    assert diff.answer.differences == ("device NVIDIA H200 against 2 of Tesla V100",)
    unnamed = msgspec.structs.replace(device, name="")
    assert diff_reports(base, steps(2000, 2000, devices=(unnamed,))).answer.differences == ()


@pytest.mark.parametrize("offset", [0, 1])
def test_several_traces_a_side_are_compared_by_the_median_one(offset: int) -> None:
    """The interval is over traces: runs that differ by 4 % hide what their steps would show."""
    factors = (0.98, 1.02, 1.0, 1.5)[: 3 + offset]
    bases = [scaled(factor) for factor in factors]
    others = [scaled(1.01 * factor) for factor in factors]
    diff = diff_sides(bases, others)
    assert diff.base is bases[2] if not offset else bases[2]
    assert diff.answer.ratio == pytest.approx(1.01)
    assert diff.answer.verdict == "no_difference_shown"
    assert diff_reports(bases[2], others[2]).answer.verdict == "slower"
    assert len(diff.answer.base_traces) == len(factors)
    assert diff.answer.base_traces[0].step_times_ns == tuple(round(ns * 0.98) for ns in STEADY)
    assert "more traces of A" in message_of(diff, "inconclusive")
    slower = diff_sides(bases[:3], [scaled(1.5 * factor) for factor in factors[:3]])
    assert slower.answer.verdict == "slower"
    assert message_of(slower, "single_traces") == ""


def test_a_trace_that_is_far_off_is_named_and_left_out() -> None:
    far = scaled(1.6, source=Source("far.json", "kineto", 1))
    bases = [scaled(factor) for factor in (0.998, 1.0, 1.001, 1.002)]
    diff = diff_sides([*bases, far], [scaled(1.03 * factor) for factor in (0.999, 1.0, 1.001)])
    assert diff.answer.verdict == "slower"
    words = "A: a step of far.json takes x1.598 the time of the other traces of its side; the inter"
    assert message_of(diff, "outlying_trace").startswith(words)
    assert len(diff.answer.base_traces) == 5


def test_traces_of_a_side_that_do_not_belong_are_named() -> None:
    stranger = answering(steps(5, 5, source=Source("c.json", "kineto", 1)), batch=4)
    whole = window_of(source=Source("d.json", "kineto", 1))
    base = answering(steps(6, 6, 6), batch=1)
    diff = diff_sides([base, base, stranger, whole], [steps(7, 7)])
    assert "A: c.json differs from trace.json in batch 1 against 4" in message_of(
        diff, "different_traces"
    )
    assert message_of(diff, "trace_without_steps") == "A: d.json has no steps and does not count"
    assert diff.answer.base_step_ns == 6


def test_traces_without_steps_are_compared_by_their_totals() -> None:
    whole = steps(1000, 1000, 1000)
    counted: dict[str, Any] = {"step": None, "step_ns": None}
    base = answering(whole, **counted)
    total = msgspec.structs.replace(whole.main_steps, steps=0)
    base = msgspec.structs.replace(
        base, steps=(), main_steps=total, ranges=(range_of("forward", 70),)
    )
    other = msgspec.structs.replace(base, ranges=(range_of("forward", 60),))
    diff = diff_reports(base, other)
    assert (diff.answer.ratio, diff.answer.interval) == (None, None)
    assert {row.part for row in diff.answer.parts} == {"gate_up", "host_wait"}
    assert [row.gpu_ns for row in diff.pair.ranges] == [Change(70, 60)]
    assert message_of(diff, "whole_traces")


def test_if_only_one_side_has_steps_the_other_is_unknown() -> None:
    diff = diff_reports(steps(1000, 1000), window_of())
    assert (diff.answer.base_step_ns, diff.answer.other_step_ns) == (1000, None)
    assert (diff.answer.ratio, diff.answer.parts) == (None, ())
    assert [side.gpu_ops for side in sides_of(diff)] == [300, None]
    assert diff.pair.ranges == ()
    assert message_of(diff, "steps_on_one_side").startswith("B has no steps")


def test_recorded_windows_of_two_variants() -> None:
    by_name = {path.stem: analyze(load(path)).report for path in bundled_recordings()}
    eager, compiled = (
        next(report for name, report in by_name.items() if name.endswith(variant))
        for variant in ("eager", "compiled")
    )
    diff = diff_reports(eager, compiled)
    assert diff.answer.verdict == "faster"
    assert diff.answer.ratio is not None
    assert diff.answer.ratio < 0.1
    assert diff.answer.unprofiled_ratio == 1_529_056 / 11_821_920
    assert diff.answer.parts[0].group == "profiler"


def test_the_json_round_trips(tmp_path: Path) -> None:
    named = Source(str(tmp_path / "a.json"), "kineto", 3)
    diff = diff_reports(steps(1, 2, 3, source=named), steps(2, 3, 4, capture=capture_of(7)))
    encoded = msgspec.json.encode(diff)
    assert msgspec.json.decode(encoded, type=Diff) == diff
    assert diff.pair.base == named.path
    answer = msgspec.json.decode(encoded)["answer"]
    assert answer["base_step_ns"], answer["other_step_ns"] == (2, 3)
    assert answer["ratio"] == 1.5
    assert sum(part["change_ns"] for part in answer["parts"]) == 1


def test_a_capture_and_another_trace_of_one_batch_do_not_differ() -> None:
    captured = scaled(1, capture=capture_of(10, batch=2000))
    foreign = scaled(1)
    answer = msgspec.structs.replace(foreign.answer, batch=2000)
    foreign = msgspec.structs.replace(foreign, answer=answer)
    assert not any("batch" in words for words in work_differences(captured, foreign))
