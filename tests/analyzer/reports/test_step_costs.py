"""Bytes, FLOPs and limits of steps that the user names the model of."""

from pathlib import Path

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.analyzer.roofline.peaks import parse_peak
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import duration
from tests.helpers.kineto_events import call, op, span, trace_of
from tests.helpers.read_once import analysed_once, loaded_once

RECORDINGS = {path.stem: path for path in bundled_recordings()}
OWN = RECORDINGS["h200-llama-3.2-1b-fused+graph"]


def given(name: str, weights: str | None = None, **more: object) -> Given:
    shape = read_model_config(name)
    model = GivenModel(shape, model_weights(shape, weights), weights)
    return Given(model=model, **more)  # type: ignore[arg-type]


def engine(foreign_traces: Path, what: Given) -> Report:
    return analyze(loaded_once(foreign_traces / "mi300x_vllm_decode_graph.json.gz"), what).report


def test_a_foreign_step_has_limits(foreign_traces: Path) -> None:
    report = engine(foreign_traces, given("gpt-oss-20b"))
    cost = report.step_cost
    assert cost is not None
    assert (cost.source, cost.batch, cost.kv_tokens) == ("model", 32, 55_086)
    # 31.55 of 32 experts in expectation, at 4.25 bits a weight: 2880 x 2880 x 3 weights each, and
    # biases in bf16. Activations of 32 tokens x 4 experts come to 1.1 %.
    weights = 3 * 2880 * 2880 * 4.25 / 8 + 3 * 2880 * 2
    experts = 24 * 32 * (1 - (1 - 4 / 32) ** 32) * weights
    rows = {part.part: part for part in report.answer.parts}
    found = rows["experts"]
    assert found.bytes is not None
    assert experts < found.bytes < 1.02 * experts
    assert found.limit_ns is not None
    assert found.limit_ns == pytest.approx(found.bytes / 5300, rel=1e-6)
    assert found.limit_ns < 0.3 * found.ns
    # One key and one value of 8 heads x 64 a position; every second layer sees 128 positions.
    kv = 12 * (55_086 + 32 * 128) * 2 * 8 * 64 * 2
    assert rows["attention"].bytes == pytest.approx(kv, rel=0.02)
    assert rows["head"].bytes == pytest.approx(201_088 * 2880 * 2, rel=0.02)
    answer = report.answer
    assert answer.limit_ns is not None
    assert cost.bytes_per_step / 5300 < answer.limit_ns < 1.02 * cost.bytes_per_step / 5300
    assert (answer.model_source, answer.limit_is_lower_bound) == ("named", False)
    assert sum(part.ns for part in answer.parts) == 10_743_181
    # The model has no part by family: which of its roles these ops are is not known.
    kernels = {part.part: part for part in answer.parts if part.kernel is not None}
    assert [name for name in kernels if kernels[name].limit_ns is None] == ["elementwise"]
    assert kernels["elementwise"].over_ns is None
    assert answer.limit_ns == sum(part.limit_ns or 0 for part in kernels.values())
    assert answer.bound == "kernels"


@pytest.mark.parametrize(
    ("requests", "queries", "keys"), [(1, [600], [600]), (3, [512, 80, 8], [512, 900, 5000])]
)
def test_a_prefills_attention_is_that_of_its_requests(
    requests: int, queries: list[int], keys: list[int]
) -> None:
    """The mean length would give another number of pairs than the lengths that were summed."""
    squares = sum(q * q for q in queries)
    products = sum(q * k for q, k in zip(queries, keys, strict=True))
    name = (
        f"execute_{sum(queries)}_context_{requests}(sq{sum(queries)}sk{sum(keys)}sqsq{squares}"
        f"sqsk{products})_generation_0(sq0sk0sqsq0sqsk0)"
    )
    trace = trace_of(span(0, 9000, name), call(10, 20, 1), op(30, 5000, 1, name="flash_fwd"))
    report = analyze(trace, given("llama-3.2-1b", "bf16")).report
    (attention,) = [part for part in report.answer.parts if part.part == "attention"]
    pairs = sum(sum(range(k - q + 1, k + 1)) for q, k in zip(queries, keys, strict=True))
    # Rotation and cache have no ops of their own here, and no FLOPs.
    assert attention.flops == 16 * 4 * pairs * 32 * 64


def test_a_peak_of_the_users_decides(foreign_traces: Path) -> None:
    peak = parse_peak("1.5TB/s")
    report = engine(foreign_traces, given("gpt-oss-20b", peak=peak))
    assert report.step_cost is not None
    assert (report.step_cost.peak_source, report.step_cost.peak_bytes_per_s) == ("--peak", 1.5e12)
    assert report.answer.bound == "memory"


@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("llama-3.1-8b", {}, "num_hidden_layers of meta-llama/Llama-3.1-8B is 32, but"),
        ("gpt-oss-120b", {}, "24 layers"),
        ("gpt-oss-20b", {"batch": 16}, "--batch is 16, but the trace says 32"),
    ],
)
def test_a_model_that_contradicts_is_not_used(
    foreign_traces: Path, name: str, more: dict[str, int], says: str
) -> None:
    report = engine(foreign_traces, given(name, **more))
    (finding,) = [one for one in report.health.findings if one.code == "model_not_used"]
    assert says in finding.message
    assert report.step_cost is None
    # What is left is the limit by shapes, that of the head.
    assert [part.part for part in report.answer.parts if part.bytes or part.limit_ns] == ["head"]
    assert report.answer == engine(foreign_traces, Given(guess=False)).answer
    assert report.answer.model_source == "shapes"


@pytest.mark.parametrize(
    ("more", "positions"),
    [
        ({}, None),
        ({"batch": 1}, None),
        ({"context": 131}, 131),
        ({"batch": 1, "context": 131}, 131),
    ],
)
def test_what_the_trace_does_not_say_makes_a_lower_bound(
    foreign_traces: Path, more: dict[str, int], positions: int | None
) -> None:
    trace = loaded_once(foreign_traces / "h200_llama1b_hf_eager.json.gz")
    cost = analyze(trace, given("llama-3.2-1b", **more)).report.step_cost
    assert cost is not None
    assert cost.is_lower_bound == (len(more) < 2)
    assert (cost.batch, cost.kv_tokens) == (more.get("batch"), positions)
    # Every weight but the embedding table, which is lm_head's too, and at least one position.
    kv = 16 * 2 * 8 * 64 * 2 * (positions or 1)
    assert cost.bytes_per_step == pytest.approx(2.4716e9 + kv, rel=1e-4)


@pytest.mark.parametrize("name", RECORDINGS)
def test_our_own_runs_have_the_work_of_their_model(name: str) -> None:
    report = analysed_once(RECORDINGS[name]).report
    capture, cost = report.capture, report.step_cost
    assert capture is not None
    assert cost is not None
    assert (cost.source, cost.bytes_per_step) == ("capture", capture.bytes_per_step)
    assert cost.peak_bytes_per_s == capture.measured_peak_bytes_per_s
    known = [part for part in report.answer.parts if part.bytes is not None]
    mlp = {"gate_up", "down"} if "llama" in name else {"router", "experts"}
    assert {"qkv", "attention", "o", "head"} | mlp <= {part.part for part in known}
    # The roles also count activations, which a step of batch 1 has few of.
    total = sum(part.bytes or 0 for part in known)
    assert capture.bytes_per_step <= total <= 1.01 * capture.bytes_per_step


def test_half_the_weight_bytes_halve_the_limit() -> None:
    trace = loaded_once(OWN)
    wide, narrow = (
        {
            part.part: part
            for part in analyze(trace, given("llama-3.2-1b", weights)).report.answer.parts
        }
        for weights in ("bf16", "fp8")
    )
    for role in ("qkv", "o", "gate_up", "down"):
        ratio = (narrow[role].limit_ns or 0) / (wide[role].limit_ns or 1)
        assert ratio == pytest.approx(0.5, abs=0.01)
    assert narrow["head"].limit_ns == wide["head"].limit_ns


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_part_below_its_limit_says_how_long_its_ops_ran_beside_others(name: str) -> None:
    analysis = analysed_once(RECORDINGS[name])
    answer, ops = analysis.report.answer, analysis.trace.ops
    below = [part for part in answer.parts if part.limit_ns is not None and part.ns < part.limit_ns]
    explanations = [line for line in answer.because if "less than its limit" in line]
    assert [line.split(" counts for ")[0] for line in explanations] == [part.part for part in below]
    for explanation, part in zip(explanations, below, strict=True):
        if sum(other.kernel == part.kernel for other in answer.parts) > 1:
            continue
        # Of the launches of one kernel, in order, a step has as many as every other.
        of_kernel = ops.name == analysis.trace.names.index(part.kernel)
        first = (answer.step or 0) * part.ops
        run_ns = int(ops.length_ns[of_kernel][first : first + part.ops].sum())
        times = f"{duration(part.ns)}, less than its limit: its ops run for {duration(run_ns)}"
        assert explanation == f"{part.part} counts for {times}, shared with others"


def test_a_part_of_a_mixture_is_below_its_limit() -> None:
    (reason,) = (
        reason
        for reason in analysed_once(
            RECORDINGS["h200-qwen3-30b-a3b-fused+graph"]
        ).report.answer.because
        if "less than" in reason
    )
    assert reason.startswith("o counts for 111 µs, less than its limit: its ops run for 491 µs")
