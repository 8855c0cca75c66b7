"""Runs compared: pairs, ratios over shared rounds, changes per step, findings, JSON."""

import math

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import Change, Comparison
from decodescope.analyzer.schema.report import Attribution, Finding, Health
from tests.helpers.comparison_reports import range_of, run_of, runs_of, step_of, window_of

EAGER, COMPILED, FUSED = "eager", "compiled", "fused+graph"
RATES = {
    EAGER: [100.0, 101.0, 99.0, 100.5],
    COMPILED: [600.0, 607.0, 592.0, 604.0],
    FUSED: [610.0, 600.0, 597.0, 601.0],
}


def codes(comparison: Comparison) -> list[str]:
    return [finding.code for finding in comparison.comparison.findings]


def full() -> Comparison:
    windows = {name: window_of([step_of(0, 1000, {"host_wait": 100})]) for name in RATES}
    return compare_runs(runs_of(RATES), windows)


def test_every_variant_is_compared_with_the_first_then_with_the_one_before() -> None:
    pairs = [(pair.base, pair.other) for pair in full().comparison.pairs]
    assert pairs == [(EAGER, COMPILED), (EAGER, FUSED), (COMPILED, FUSED)]
    two = compare_runs(runs_of({EAGER: [1.0], COMPILED: [2.0]}), {})
    assert len(two.comparison.pairs) == 1


def test_ratios_and_their_verdicts() -> None:
    to_compiled, _, to_fused = full().comparison.pairs
    assert to_compiled.speed is not None
    assert to_fused.speed is not None
    assert to_compiled.speed.value == pytest.approx(sum(RATES[COMPILED]) / sum(RATES[EAGER]))
    assert to_compiled.speed.verdict == "faster"
    assert sides_of(full())[0].step_ns == pytest.approx(1e9 / (sum(RATES[EAGER]) / 4))
    assert to_fused.speed.verdict == "no_difference_shown"
    assert to_fused.speed.interval is not None
    assert to_fused.speed.interval.low < 1 < to_fused.speed.interval.high
    slower = compare_runs(runs_of({COMPILED: RATES[COMPILED], EAGER: RATES[EAGER]}), {})
    assert [pair.speed and pair.speed.verdict for pair in slower.comparison.pairs] == ["slower"]


def test_batches_count_in_step_times() -> None:
    rates = {EAGER: [100.0] * 3, COMPILED: [400.0] * 3}
    sides = sides_of(compare_runs(runs_of(rates, batch=4), {}))
    assert [side.step_ns for side in sides] == [4e7, 1e7]


def test_rates_and_accuracy_of_each_variant() -> None:
    compared = full().comparison
    assert compared.rounds == 4
    assert [one.variant for one in compared.variants] == list(RATES)
    eager = compared.variants[0]
    assert eager.tokens_per_s == tuple(RATES[EAGER])
    assert eager.mean == pytest.approx(100.125)
    assert eager.interval is not None
    assert eager.interval.low < eager.mean < eager.interval.high
    assert eager.accuracy is not None


def test_two_rounds_have_no_interval_and_a_reason() -> None:
    compared = compare_runs(runs_of({EAGER: [1.0, 2.0], COMPILED: [3.0, 4.0]}), {})
    (pair,) = compared.comparison.pairs
    assert pair.speed is not None
    assert (pair.speed.interval, pair.speed.verdict) == (None, "unknown")
    assert "2 rounds" in (pair.speed.reason or "")
    assert "few_rounds" in codes(compared)


def test_a_failed_round_of_one_variant_is_excluded_from_its_pairs_only() -> None:
    runs = [run for run in runs_of(RATES) if (run.variant, run.round) != (COMPILED, 2)]
    compared = compare_runs(runs, {})
    to_compiled, to_fused, _ = compared.comparison.pairs
    kept = [0, 1, 3]
    ratio = sum(RATES[COMPILED][i] for i in kept) / sum(RATES[EAGER][i] for i in kept)
    assert to_compiled.speed is not None
    assert to_compiled.speed.value == pytest.approx(ratio)
    assert to_fused.speed is not None
    assert to_fused.speed.value == pytest.approx(sum(RATES[FUSED]) / sum(RATES[EAGER]))
    assert compared.comparison.rounds == 3
    (message,) = (f.message for f in compared.comparison.findings if f.code == "missing_rounds")
    assert "compiled" in message
    assert "round 3 of 4" in message


def test_variants_without_a_common_round_have_no_ratio() -> None:
    compared = compare_runs([run_of(EAGER, 0, 100.0), run_of(COMPILED, 1, 200.0)], {})
    (pair,) = compared.comparison.pairs
    assert pair.speed is None
    assert compared.comparison.rounds == 0


def test_changes_are_means_of_the_windows_steps() -> None:
    base = window_of(
        [step_of(0, 1000, {"host_wait": 300}), step_of(1, 2000, {"host_wait": 500, "unlinked": 8})],
        [range_of("decode_step", 2192)],
    )
    other = window_of(
        [step_of(0, 700, {"graph_internal": 60}, launch_calls=1, gpu_ops=90)],
        [range_of("decode_step", 640)],
    )
    compared = compare_runs(
        runs_of({EAGER: [1.0], COMPILED: [2.0]}), {EAGER: base, COMPILED: other}
    )
    (pair,) = compared.comparison.pairs
    assert pair.step is not None
    assert (pair.step.base_step_ns, pair.step.other_step_ns) == (1000, 700)
    assert {row.part: row.change_ns for row in pair.step.parts} == {
        "gate_up": -60,
        "host_wait": -300,
        "graph_internal": 60,
    }
    sides = sides_of(compared)
    assert [(side.launches, side.gpu_ops) for side in sides] == [(3, 300), (1, 90)]
    assert [(row.path, row.gpu_ns) for row in pair.ranges] == [("decode_step", Change(1096, 640))]


def test_a_variant_without_a_window_has_only_its_speed() -> None:
    windows = {EAGER: window_of([step_of(0, 1000, {})], [range_of("decode_step", 5)])}
    compared = compare_runs(runs_of({EAGER: [1.0], COMPILED: [2.0]}), windows)
    (pair,) = compared.comparison.pairs
    assert pair.speed is not None
    assert [side.gpu_ops for side in sides_of(compared)] == [300, None]
    assert pair.step is None
    assert pair.ranges == ()
    assert "no_window" in codes(compared)


def test_cpu_windows_have_no_launch_calls() -> None:
    window = window_of([step_of(0, 1000, {})])
    device = msgspec.structs.replace(window.devices[0], device="cpu")
    window = msgspec.structs.replace(window, devices=(device,))
    runs = runs_of({EAGER: [1.0], COMPILED: [2.0]}, device="cpu")
    sides = sides_of(compare_runs(runs, {EAGER: window, COMPILED: window}))
    assert [(side.launches, side.gpu_ops) for side in sides] == [(None, 300), (None, 300)]


def test_findings_of_windows_name_their_variant() -> None:
    sick = Health(
        "degraded", 1, (Finding("unlinked_gpu_ops", "1 of 9"), Finding("cpu_capture", ""))
    )
    windows = {
        EAGER: window_of([step_of(0, 9, {})], health=sick),
        COMPILED: window_of([step_of(0, 9, {})], attribution=Attribution(90, 0, 10)),
    }
    compared = compare_runs(
        runs_of({EAGER: [1.0] * 3, COMPILED: [2.0] * 3}), windows, (Finding("mine", "first"),)
    )
    assert codes(compared) == ["mine", "unlinked_gpu_ops", "unattributed_ops"]
    messages = [finding.message for finding in compared.comparison.findings]
    assert messages[1] == "eager: 1 of 9"
    assert messages[2].startswith("compiled: 10 of 100 ops")


def test_a_variant_with_default_tiles_is_named_once() -> None:
    untuned = Health("ok", 0, (Finding("default_tiles", "tiles of qkv"), Finding("other", "x")))
    runs = [
        msgspec.structs.replace(run, health=untuned) if run.variant == FUSED else run
        for run in runs_of({EAGER: [1.0] * 3, FUSED: [2.0] * 3})
    ]
    window = window_of([step_of(0, 9, {})])
    compared = compare_runs(runs, {EAGER: window, FUSED: window}).comparison
    assert compared.findings == (Finding("default_tiles", "fused+graph: tiles of qkv"),)


@pytest.mark.parametrize(
    ("tokens", "token"),
    [([[5, 6, 9, 8]], "token 3"), ([[5, 6]], "token 3"), ([[5, 6, 7, 8]], None)],
)
def test_tokens_that_differ_from_the_first_variants_are_a_finding(
    tokens: list[list[int]], token: str | None
) -> None:
    runs = [run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, 2.0, output_token_ids=tokens)]
    found = [
        finding.message
        for finding in compare_runs(runs, {}).comparison.findings
        if finding.code == "different_tokens"
    ]
    assert (token is None) == (not found)
    assert token is None or token in found[0]


def test_different_prompts_are_a_finding() -> None:
    runs = [run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, 2.0, prompt_token_ids=[[9]])]
    assert "different_prompts" in codes(compare_runs(runs, {}))


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], "two variants"),
        ([run_of(EAGER, 0, 1.0), run_of(EAGER, 1, 1.0)], "two variants"),
        ([run_of(EAGER, 0, 1.0), run_of(COMPILED, None, 1.0)], "has no round"),
        ([run_of(EAGER, 0, 1.0), run_of(EAGER, 0, 1.0)], "repeats round 0"),
        ([run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, 1.0, batch=2)], "batch 1 against 2"),
        ([run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, 1.0, dtype="fp16")], "dtype bf16 against"),
        ([run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, 0.0)], "took no time"),
        ([run_of(EAGER, 0, 1.0), run_of(COMPILED, 0, math.nan)], "took no time"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_one_line(runs: list, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        compare_runs(runs, {})
    assert "\n" not in str(refused.value)


def test_the_json_round_trips() -> None:
    compared = full()
    assert msgspec.json.decode(msgspec.json.encode(compared), type=Comparison) == compared
    assert msgspec.json.encode(full()) == msgspec.json.encode(compared)
