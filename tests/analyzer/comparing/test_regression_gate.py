"""The gate: what fails it, what does not, and baselines that cannot be used."""

import json
from typing import Any

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.comparing.regression_gate import check_baseline, gate_diff, read_baseline
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import Comparison, Gate
from tests.helpers.comparison_reports import capture_of, runs_of, step_of, window_of

STEADY = [600.0, 602.0, 598.0, 601.0]
EAGER = [100.0, 101.0, 99.0, 100.0]


def comparison(
    eager: list[float] = EAGER, compiled: list[float] = STEADY, **changes: Any
) -> Comparison:
    return compare_runs(runs_of({"eager": eager, "compiled": compiled}, **changes), {})


def baseline(**changes: Any) -> bytes:
    return msgspec.json.encode(comparison(**changes))


def checked_against(now: Comparison, before: bytes, allowed: float = 5.0) -> Comparison:
    variants = [rates.variant for rates in now.comparison.variants]
    return check_baseline(now, read_baseline(before, "old.json", variants, allowed))


def gate_of(now: Comparison, before: bytes, allowed: float = 5.0) -> Gate:
    gate = checked_against(now, before, allowed).comparison.gate
    assert gate is not None
    return gate


def codes(checked: Comparison) -> list[str]:
    return [finding.code for finding in checked.comparison.findings]


def test_an_equal_comparison_passes() -> None:
    gate = gate_of(comparison(), baseline())
    assert gate == Gate("old.json", 5.0, ())


def test_a_clear_slowdown_fails_with_its_size() -> None:
    slow = [rate * 0.9 for rate in STEADY]
    (failure,) = gate_of(comparison(compiled=slow), baseline()).failures
    assert failure.startswith("compiled, 540 tokens/s after 600")
    assert "10.0 % slower" in failure
    assert "95 % interval" in failure
    assert "allowed are 5 %" in failure


@pytest.mark.parametrize(("factor", "fails"), [(0.951, False), (0.949, True), (1.3, False)])
def test_the_allowed_share_is_the_threshold(factor: float, fails: bool) -> None:
    gate = gate_of(comparison(compiled=[rate * factor for rate in STEADY]), baseline())
    assert bool(gate.failures) == fails


def test_a_slowdown_within_the_noise_is_a_finding() -> None:
    noisy = [600.0, 400.0, 650.0, 500.0]
    checked = checked_against(comparison(compiled=noisy), baseline())
    assert checked.comparison.gate == Gate("old.json", 5.0, ())
    assert "inconclusive_gate" in codes(checked)


def test_without_an_interval_nothing_fails() -> None:
    checked = checked_against(comparison(eager=[100.0], compiled=[500.0]), baseline())
    assert checked.comparison.gate == Gate("old.json", 5.0, ())
    (message,) = (f.message for f in checked.comparison.findings if f.code == "inconclusive_gate")
    assert "no interval: 4 rounds in the baseline, 1 now" in message
    assert message.endswith("this may be noise, measure more rounds")


def test_sides_may_have_different_numbers_of_rounds() -> None:
    gate = gate_of(comparison(eager=EAGER * 2, compiled=[500.0, 501.0] * 4), baseline())
    assert len(gate.failures) == 1


def test_a_new_variant_is_a_finding_and_a_missing_one_an_error() -> None:
    runs = runs_of({"eager": EAGER, "compiled": STEADY, "fused": STEADY})
    more = compare_runs(runs, {})
    assert "not_in_baseline" in codes(checked_against(more, baseline()))
    with pytest.raises(InputError, match=r"old\.json: the baseline has fused, which") as refused:
        checked_against(comparison(), msgspec.json.encode(more))
    assert "--variants" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "tiny"), ("weights", "pretrained"), ("dtype", "fp16"), ("batch", 8),
     ("context", 1024), ("tokens", 64), ("device", "cpu"), ("device_name", "NVIDIA H100 PCIe")],
)  # fmt: skip
def test_a_baseline_of_another_workload_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{field.replace('_', ' ')} {value} against") as refused:
        checked_against(comparison(), baseline(**{field: value}))
    assert "\n" not in str(refused.value)
    assert "new baseline" in str(refused.value)


def test_different_software_is_a_finding() -> None:
    before = baseline(environment={"torch": "2.12.0", "driver": "580.1"})
    checked = checked_against(comparison(), before)
    (message,) = (f.message for f in checked.comparison.findings if f.code == "other_software")
    assert message.endswith("torch 2.12.0 then, 2.13.0 now")


def changed(**keys: object) -> bytes:
    return json.dumps(json.loads(baseline()) | keys).encode()


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (b"", "not the JSON"),
        (b"\xff\xfe\x00", "not the JSON"),
        (b"[1, 2]", "not the JSON"),
        (b'{"schema_version": "one"}', "not the JSON"),
        (b'{"schema_version": 3, "x": ' + b"[" * 100_000, "not the JSON"),
        (b'{"schema_version": 3, "tokens_per_s": 3}', "not the JSON of a comparison"),
        (changed(schema_version=1), "schema version 1, this decodescope reads 3"),
        (changed(runs=[]), "no measured runs"),
        (changed(runs=[json.loads(baseline())["runs"][0] | {"tokens_per_s": -1}]), "no measured"),
        (changed(runs=[{"variant": "eager"}]), "not the JSON of a comparison"),
    ],
)  # fmt: skip
def test_files_that_are_not_a_baseline_are_one_line_errors(before: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        read_baseline(before, "old.json", ["eager", "compiled"], 5.0)
    assert str(refused.value).startswith("old.json: ")
    assert "\n" not in str(refused.value)


def test_errors_that_need_no_measurement_are_raised_before_it() -> None:
    read_baseline(baseline(), "old.json", ["eager", "compiled", "fused"], 5.0)
    with pytest.raises(InputError, match="the baseline has compiled"):
        read_baseline(baseline(), "old.json", ["eager"], 5.0)


@pytest.mark.parametrize("allowed", [-1.0, 100.0, float("nan"), float("inf")])
def test_meaningless_shares_are_errors(allowed: float) -> None:
    window = window_of([step_of(0, 10, {})])
    for refuse in (
        lambda: checked_against(comparison(), baseline(), allowed),
        lambda: gate_diff(diff_reports(window, window), allowed),
    ):
        with pytest.raises(InputError, match="--fail-on-regression"):
            refuse()


def gated(*times_ns: int, allowed: float = 5.0, **changes: Any) -> Any:
    """B, whose steps take these times, against A, whose steps take 1,000 ns."""
    base = window_of([step_of(i, 1000 + i, {}) for i in range(4)])
    other = window_of([step_of(i, ns, {}) for i, ns in enumerate(times_ns)], **changes)
    return gate_diff(diff_reports(base, other), allowed)


def test_a_diff_passes_fails_or_is_inconclusive() -> None:
    assert gated(1000, 1001, 1002).gate.failures == ()
    (failure,) = gated(1200, 1201, 1202).gate.failures
    assert failure.startswith("trace.json against trace.json: a step takes 20.0 % longer, x1.2")
    assert failure.endswith("slower; allowed are 5 %")
    assert gated(1200, 1201, 1202, allowed=25).gate.failures == ()
    open_question = gated(900, 1500, 1300)
    assert open_question.gate.failures == ()
    assert "inconclusive" in [finding.code for finding in open_question.findings]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_fewer_steps_never_make_the_gate_stricter(steps: int) -> None:
    """A change that all steps do not show is not shown by the first few steps either."""
    noisy = (1500, 900, 1300, 1000, 1600, 1100, 1400, 950)
    assert gated(*noisy).gate.failures == ()
    assert gated(*noisy[:steps]).gate.failures == ()


def test_a_single_step_fails_nothing_and_says_what_would_decide() -> None:
    checked = gated(9000)
    assert checked.gate.failures == ()
    (message,) = (f.message for f in checked.findings if f.code == "inconclusive")
    assert message == (
        "inconclusive: x8.991, B has 1 timed step: an interval needs at least 2 a side; about "
        "1 more step of B would decide it"
    )


def test_a_diff_of_different_work_has_no_gate() -> None:
    device = msgspec.structs.replace(window_of().devices[0], name="Tesla V100")
    with pytest.raises(InputError, match="A and B differ in device NVIDIA H200 against Tesla"):
        gated(1000, 1000, devices=(device,))


def test_a_diff_without_step_times_has_no_gate() -> None:
    whole = window_of()
    with pytest.raises(InputError, match="no step time to compare"):
        gate_diff(diff_reports(whole, whole), 5.0)
    with pytest.raises(InputError, match="no step time to compare"):
        gated()


def test_unprofiled_times_do_not_decide_a_diff() -> None:
    steps = [step_of(index, 1000, {}) for index in range(3)]
    base, other = (window_of(steps, capture=capture_of(ns)) for ns in (1000, 2000))
    checked = gate_diff(diff_reports(base, other), 5.0)
    assert checked.answer.unprofiled_ratio == 2.0
    assert checked.gate == Gate("trace.json", 5.0, ())
