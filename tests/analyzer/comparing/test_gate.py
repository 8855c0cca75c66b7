"""The gate: what fails it, what it leaves open, and how often it is wrong."""

import secrets
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.gate import Allowed, gate
from decodescope.analyzer.comparing.gate_samples import (
    STEP,
    Measured,
    measured_runs,
    measured_trace,
    subjects_of,
)
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.reports.analysis import analysis_of_step, analyze
from decodescope.analyzer.schema.gate_report import Baseline, GateRow, Sample, Subject
from tests.helpers.comparison_reports import runs_of
from tests.helpers.kineto_events import Event, call, op, span, trace_of

STEPS_NS = (1_000_000, 1_004_000, 998_000, 1_002_000, 999_000)


def sample(times_ns: Sequence[int] = STEPS_NS, **parts: Sequence[int]) -> Sample:
    return Sample("t.json", tuple(times_ns), {name: tuple(ns) for name, ns in parts.items()})


def side(*samples: Sample, name: str = STEP, **conditions: str) -> tuple[Subject, ...]:
    return (Subject(name, conditions, samples),)


def saved(subjects: tuple[Subject, ...]) -> Baseline:
    return Baseline(1, "main", "2026-11-27T12:00:00+00:00", subjects)


def scaled(one: Sample, factor: float) -> Sample:
    times = tuple(round(ns * factor) for ns in one.step_times_ns)
    return msgspec.structs.replace(one, step_times_ns=times)


def runs(one: Sample) -> tuple[Subject, ...]:
    """Three runs, of which `one` is the median."""
    return side(*(scaled(one, factor) for factor in (0.999, 1.0, 1.0015)))


def judged(base: Sample, now: Sample, allowed: Allowed) -> GateRow:
    return gate(saved(runs(base)), runs(now), allowed).rows[0]


@pytest.mark.parametrize(
    ("factor", "allowed", "verdict"),
    [
        (1.5, 0, "slower"),
        (1.5, 45, "slower"),
        (1.5, 55, "within"),
        (0.9, 0, "within"),
        (1.001, 2, "within"),
        (1.0, 0, "undecided"),
        (1.02, 2, "undecided"),
    ],
)
def test_a_step_fails_only_beyond_what_is_allowed(
    factor: float, allowed: float, verdict: str
) -> None:
    row = judged(sample(), scaled(sample(), factor), Allowed(allowed))
    assert row.verdict == verdict
    assert row.ratio == pytest.approx(factor, abs=1e-5)


def test_a_part_is_judged_only_if_it_is_limited() -> None:
    base = sample(attention=(1000, 1001, 999), head=(300, 300, 300))
    now = sample(attention=(1200, 1201, 1199), head=(300, 300, 300))
    for allowed, verdict in ((10.0, "slower"), (30.0, "within")):
        limits = Allowed(5.0, {"attention": allowed})
        report = gate(saved(side(base, base, base)), side(now, now, now), limits)
        rows = {row.part: row for row in report.rows}
        assert rows["attention"].verdict == report.verdict == verdict
        assert (rows["attention"].base_ns, rows["attention"].now_ns) == (1000, 1200)
        assert rows["head"].verdict is None
        assert list(rows) == [None, "attention", "head"]
    with pytest.raises(InputError, match=r"--allow rope=…: no such part; there are attention, hea"):
        gate(saved(side(base)), side(now), Allowed(0, {"rope": 1.0}))


@pytest.mark.parametrize(
    ("base", "now", "verdict"),
    [
        ((0, 0), (5, 5), "slower"),
        ((5, 5), (0, 0), "within"),
        ((0, 0), (5, 0), "undecided"),
        ((0, 0, 0), (0, 5, 5), "undecided"),
    ],
)
def test_a_part_that_one_side_lacks_is_no_ratio_but_judged(
    base: tuple[int, ...], now: tuple[int, ...], verdict: str
) -> None:
    """The times of the part in each sample; 0 is one without it."""
    sides = [
        [sample(head=(9,) * 3, **({"rope": (ns,) * 3} if ns else {})) for ns in times]
        for times in (base, now)
    ]
    report = gate(saved(side(*sides[0])), side(*sides[1]), Allowed(5, {"rope": 1.0}))
    (row,) = (row for row in report.rows if row.part == "rope")
    assert (row.ratio, row.interval, row.verdict) == (None, None, verdict)


def vllm_steps(kv_tokens: int) -> list[Event]:
    """Decode steps of four requests."""
    name = f"execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk{kv_tokens}sqsq4sqsk1)"
    events = []
    for step in range(4):
        at_ns = 10_000 * step
        events.append(span(at_ns, at_ns + 9_000, name))
        events += [call(at_ns + 10, at_ns + 20, step + 1), op(at_ns + 30, at_ns + 6_000, step + 1)]
    return events


def test_other_kv_lengths_are_said() -> None:
    traces = [trace_of(*vllm_steps(tokens)) for tokens in (1_000, 1_050, 100_000)]
    short, similar, long = (subjects_of([measured_trace(analyze(trace))]) for trace in traces)
    assert short[0].conditions["kv_tokens"] == "1000"
    assert not any(
        one.code == "different_kv" for one in gate(saved(short), similar, Allowed()).findings
    )
    (said,) = (
        one for one in gate(saved(short), long, Allowed()).findings if one.code == "different_kv"
    )
    assert "1,000 KV tokens, those of now 100,000" in said.message


def test_noise_leaves_open_and_says_how_many_samples_would_do() -> None:
    noisy = [sample((round(1e6 * factor),)) for factor in (0.9, 1.1, 1.0)]
    slower = [scaled(one, 1.1) for one in noisy]
    row = gate(saved(side(*noisy)), side(*slower), Allowed()).rows[0]
    assert row.verdict == "undecided"
    assert row.counted_in == "trace"
    needed = 3 + (row.more_samples or 0)
    many = noisy * -(-needed // 3)
    grown = gate(saved(side(*many)), side(*(scaled(one, 1.1) for one in many)), Allowed())
    assert grown.rows[0].verdict == "slower"
    assert len(many) < 100


def test_a_run_that_is_far_off_is_left_out_and_named() -> None:
    steady = [scaled(sample(), factor) for factor in (0.999, 1.0, 1.0015, 1.001)]
    far = msgspec.structs.replace(scaled(sample(), 1.5), path="far.json")
    for base, now, name in (((*steady, far), steady, "baseline"), (steady, (far, *steady), "now")):
        changed = [scaled(one, 1.03) for one in now]
        report = gate(saved(side(*base)), side(*changed), Allowed(1))
        assert report.verdict == "slower"
        (found,) = report.findings
        assert found.code == "outlying_trace"
        assert found.message.startswith(f"{name}: a step of far.json takes x1.4")
        assert gate(saved(side(*base)), side(*now), Allowed(1)).verdict == "within"


def test_one_step_is_no_sample() -> None:
    report = gate(saved(side(sample((1000,)))), side(sample((9000,))), Allowed())
    assert report.verdict == "undecided"
    assert (report.rows[0].interval, report.rows[0].more_samples) == (None, 1)
    assert report.rows[0].counted_in == "step"
    assert [finding.code for finding in report.findings] == ["single_samples"]


@pytest.mark.parametrize("name", ["driver", "device", "model", "kind", "batch"])
def test_another_condition_is_refused_unless_it_is_accepted(name: str) -> None:
    base, now = side(sample(), **{name: "one"}), side(sample(), **{name: "other"})
    with pytest.raises(InputError, match=f"baseline main: differs in .*one.* --accept {name}"):
        gate(saved(base), now, Allowed())
    report = gate(saved(base), now, Allowed(conditions=frozenset([name])))
    assert "other_conditions" in [finding.code for finding in report.findings]


def test_other_software_is_what_a_gate_may_be_for() -> None:
    base, now = side(sample(), torch="2.11"), side(sample(), torch="2.13")
    findings = gate(saved(base), now, Allowed()).findings
    assert "the baseline differs in torch 2.11 against 2.13" in [one.message for one in findings]


def test_every_variant_of_a_comparison_is_judged() -> None:
    def measured(factor: float, **changes: str) -> tuple[Subject, ...]:
        rates = {"eager": [100.0, 101.0, 99.5], "fused": [600 / factor, 601 / factor, 602 / factor]}
        comparison = compare_runs(runs_of(rates, **changes), {})
        return subjects_of(measured_runs(comparison, "c.json"))

    report = gate(saved(measured(1)), measured(1.1), Allowed(5))
    assert {row.subject: row.verdict for row in report.rows} == {
        "eager": "within",
        "fused": "slower",
    }
    assert report.rows[1].now_ns == round(1e9 * 1.1 / 601)
    assert report.rows[1].counted_in == "round"
    with pytest.raises(InputError, match="has runs of eager, but the files have not"):
        gate(saved(measured(1)), measured(1)[1:], Allowed())
    found = gate(saved(measured(1)[:1]), measured(1), Allowed(5)).findings
    assert [finding.code for finding in found] == ["not_in_baseline"]
    with pytest.raises(InputError, match="device NVIDIA H200 against NVIDIA H100"):
        gate(saved(measured(1)), measured(1, device_name="NVIDIA H100"), Allowed())


def test_a_side_is_of_one_work() -> None:
    measured = [Measured(STEP, {"batch": batch}, sample()) for batch in ("1", "1", "8")]
    with pytest.raises(InputError, match="batch 1 against 8; a side is of one work"):
        subjects_of(measured)


def test_a_trace_is_measured_by_its_own_answers() -> None:
    events = []
    for number, length in enumerate((30_000, 32_000, 31_000)):
        start, correlation = 100_000 * number, 2 * number + 1
        events += [
            span(start, start + 20_000, f"decode_step_{number}"),
            call(start + 1_000, start + 3_000, correlation),
            op(start + 10_000, start + 10_000 + length, correlation, name="gemm_kernel"),
            call(start + 4_000, start + 6_000, correlation + 1),
            op(start + 50_000, start + 60_000, correlation + 1, name="softmax_kernel"),
        ]
    analysis = analyze(trace_of(*events))
    timed = [step for step in analysis.report.steps if step.timed]
    measured = measured_trace(analysis).sample
    assert len(timed) >= 2
    assert measured.step_times_ns == tuple(step.time_ns for step in timed)
    for place, step in enumerate(timed):
        parts = analysis_of_step(analysis, step.index).report.answer.parts
        times_ns = {name: times[place] for name, times in measured.part_times_ns.items()}
        assert times_ns == {part.part: part.ns for part in parts if part.ns}
    with pytest.raises(InputError, match=r"hand-made.json: has no steps"):
        measured_trace(analyze(trace_of(op(0, 10))))


def test_planted_changes_are_found_and_noise_is_not() -> None:
    """Five traces a side, of ten steps each: runs vary by 0.5 %, steps by 1 %."""
    seed = secrets.randbits(32)
    generator = np.random.default_rng(seed)

    def drawn(factor: float) -> tuple[Subject, ...]:
        runs = 1e7 * factor * np.exp(generator.normal(0, 0.005, (5, 1)))
        times_ns = runs * np.exp(generator.normal(0, 0.01, (5, 10)))
        return side(*(sample(of_run.astype(int).tolist()) for of_run in times_ns))

    def found(factor: float, draws: int) -> int:
        reports = (gate(saved(drawn(1)), drawn(factor), Allowed()) for _ in range(draws))
        return sum(report.verdict == "slower" for report in reports)

    # Of false alarms there are 2.5 % at most: over 7 of 60 are less likely than one in 5,000.
    assert found(1.0, 60) <= 7, seed
    assert found(1.03, 20) >= 18, seed
