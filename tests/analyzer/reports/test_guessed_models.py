"""Reports of engines' traces whose model nobody named."""

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.trace_facts import TraceFacts
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.reports.model_costs import step_sizes
from decodescope.analyzer.reports.roofline_model import roofline_model
from decodescope.analyzer.reports.step_figures import window_bandwidth
from decodescope.analyzer.reports.user_facts import NOTHING, Given, GivenModel
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.step_annotations import UNKNOWN
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.views.report_table import SECTIONS, report_table
from tests.helpers.foreign.layered import step_names
from tests.helpers.foreign.tensor_parallel import GATHER, H100, engine_events, engine_trace
from tests.helpers.kineto_events import Event, call, event, op, span, trace_of
from tests.helpers.modelling.products import product
from tests.helpers.rich_report import text_of


def codes(report: Report) -> set[str]:
    return {one.code for one in report.health.findings if one.code.startswith("model_")}


def test_layers_and_logits_say_the_model_and_its_weights_the_limit() -> None:
    report = analyze(engine_trace()).report
    cost, answer = report.step_cost, report.answer
    assert cost is not None
    assert (cost.source, cost.model) == ("guess", "meta-llama/Llama-3.1-70B")
    assert (cost.tensor_parallel, cost.batch, cost.kv_tokens) == (4, 1, None)
    assert cost.is_lower_bound
    assert "80 layers" in cost.evidence
    assert codes(report) == {"model_guessed"}
    # 70.6 G weights less the embedding, a quarter of them on each device, at 3.35 TB/s.
    assert answer.limit_ns == pytest.approx(10.38e6, rel=2e-3)
    assert (answer.model_source, answer.limit_is_lower_bound) == ("guessed", True)


def test_a_guess_is_marked_wherever_its_name_stands_and_gives_no_rate() -> None:
    report = analyze(engine_trace()).report
    shown = text_of(report_table(report, [part.name for part in SECTIONS]), 300)
    assert shown.count("meta-llama/Llama-3.1-70B") == 3
    assert shown.count("meta-llama/Llama-3.1-70B?") == 2
    assert "taken for meta-llama/Llama-3.1-70B over 4 devices" in shown
    assert "a step reads at least 34.8 GB" in shown
    assert window_bandwidth(report) is None
    assert roofline_model(report).step is None


def test_a_named_model_has_the_same_limit_without_batch_and_positions() -> None:
    shape = read_model_config("llama-3.1-70b")
    model = GivenModel(shape, model_weights(shape), None, tensor_parallel=4)
    trace = engine_trace(gather={}, classes=())
    report = analyze(trace, Given(model=model)).report
    assert report.answer.limit_ns == pytest.approx(10.38e6, rel=2e-3)
    assert report.step_cost is not None
    assert (report.step_cost.source, report.step_cost.batch) == ("model", None)
    assert report.answer.batch is None
    assert report.answer.limit_is_lower_bound
    assert analyze(trace).report.step_cost is None


@pytest.mark.parametrize(
    ("more", "bytes_of_a_weight"), [("_e4m3", 1), ("_w4a16_marlin", 4.125 / 8), ("_bf16", 2)]
)
def test_a_guess_reads_what_its_kernels_show(more: str, bytes_of_a_weight: float) -> None:
    cost = analyze(engine_trace(more=more)).report.step_cost
    assert cost is not None
    layers = 80 * (8192 * (8192 * 2 + 2 * 1024) + 3 * 8192 * 28_672)
    head = 128_256 * 8192
    head_bytes = min(2, bytes_of_a_weight)
    expected = (layers * bytes_of_a_weight + head * head_bytes) / 4
    assert cost.bytes_per_step == pytest.approx(expected, rel=2e-3)


def test_a_guess_that_would_take_longer_than_the_kernels_ran_is_refused() -> None:
    report = analyze(engine_trace(kernel_ns=6_000)).report
    assert report.step_cost is None
    (finding,) = [one for one in report.health.findings if one.code == "model_not_used"]
    assert "would take 10.4 ms at least, but the kernels ran for" in finding.message
    assert all(part.limit_ns is None for part in report.answer.parts)


def test_a_named_model_that_would_take_longer_is_refused_by_the_same_sentence() -> None:
    shape = read_model_config("llama-3.1-70b")
    model = GivenModel(shape, model_weights(shape), None)
    report = analyze(engine_trace(), Given(model=model)).report
    (finding,) = [one for one in report.health.findings if one.code == "model_not_used"]
    assert "--tensor-parallel" in finding.message
    assert report.answer.limit_ns is None


def test_without_a_degree_of_parallelism_candidates_are_listed() -> None:
    """Qwen3-32B by its class and 64 layers, but over how many devices?"""
    trace = engine_trace(layers=64, gather={}, classes=("Qwen3ForCausalLM_0",))
    report = analyze(trace).report
    (finding,) = [one for one in report.health.findings if one.code.startswith("model_")]
    assert finding.code == "model_candidates"
    assert "Qwen/Qwen3-32B over 2 devices" in finding.message
    assert report.step_cost is None
    chosen = analyze(trace, Given(tensor_parallel=4)).report.step_cost
    assert chosen is not None
    assert (chosen.source, chosen.tensor_parallel) == ("guess", 4)


@pytest.mark.parametrize(
    ("layers", "classes", "gather"),
    [
        (80, (), {}),
        (7, ("LlamaForCausalLM_0",), GATHER),
        (80, ("GrokForCausalLM_0",), GATHER),
        (80, ("LlamaForCausalLM_0",), {**GATHER, "In msg nelems": 8192}),
        (80, ("LlamaForCausalLM_0",), {**GATHER, "In msg nelems": -1}),
        (80, ("LlamaForCausalLM_0",), {**GATHER, "Process Group Ranks": "[0, 1, ...]"}),
        (80, ("LlamaForCausalLM_0",), {**GATHER, "Process Group Ranks": "[]"}),
        (80, ("ForCausalLM_0", "\x1b[31mForCausalLM_0"), {**GATHER, "Collective name": "\x1b"}),
    ],
)
def test_little_or_hostile_evidence_is_no_guess(
    layers: int, classes: tuple[str, ...], gather: dict[str, object]
) -> None:
    report = analyze(engine_trace(layers=layers, classes=classes, gather=gather)).report
    assert report.step_cost is None
    assert not codes(report) & {"model_guessed", "model_not_used"}


def head_only(tokens: int, requests: int) -> Trace:
    """A mixed step of which only the head's product has shapes: it ran for `requests` rows."""
    names = step_names(32)
    marker = (
        f"execute_{tokens}_context_{requests}(sq{tokens}sk{tokens}sqsq{tokens**2}sqsk{tokens**2})"
        "_generation_0(sq0sk0sqsq0sqsk0)"
    )
    events: list[Event] = [span(0, 900_000, marker)]
    for place, name in enumerate(names):
        start, external = 1_000 * place, 5_000 + place
        if "head" in name:
            dims = [[requests, 4096], [4096, 128_256]]
            events.append(
                event(
                    "cpu_op",
                    "aten::mm",
                    start,
                    start + 900,
                    4242,
                    1,
                    **{
                        "External id": external,
                        "Input Dims": dims,
                        "Input type": ["c10::BFloat16", "c10::BFloat16"],
                    },
                )
            )
        events.append(call(start + 10, start + 20, place + 1))
        at = 2_000_000 + place * 4_000_000
        ids = {"External id": external} if "head" in name else {}
        events.append(op(at, at + 3_000_000, place + 1, name=name, **ids))
    return trace_of(*events, **H100)


@pytest.mark.parametrize(("tokens", "requests"), [(8192, 46), (600, 1), (64, 64)])
def test_a_right_model_is_not_refused_for_its_head(tokens: int, requests: int) -> None:
    trace = head_only(tokens, requests)
    shape = read_model_config("llama-3.1-8b")
    report = analyze(trace, Given(model=GivenModel(shape, model_weights(shape)))).report
    assert len(trace.work) == 1
    assert codes(report) == set()
    assert report.step_cost is not None
    wrong = read_model_config("llama-2-7b")
    report = analyze(trace, Given(model=GivenModel(wrong, model_weights(wrong)))).report
    assert codes(report) == {"model_not_used"}
    # Shapes give the limit of the head instead.
    assert report.answer.model_source == "shapes"
    assert {part.part for part in report.answer.parts if part.limit_ns} == {"head"}


def test_the_product_of_the_head_tells_no_tokens_of_a_small_matrix() -> None:
    """Transposed, it is the router's of gpt-oss, which has 32 rows, for 201,088 tokens."""
    shape = read_model_config("gpt-oss-20b")
    facts = TraceFacts(products=(product(32, 201_088, 2880),))
    sizes = step_sizes(UNKNOWN, NOTHING, shape, facts, devices=1)
    assert (sizes.batch, sizes.shape.queries) == (32, 32)


def test_a_device_of_unknown_bandwidth_has_no_limit() -> None:
    unknown = {"deviceProperties": [{"id": 0, "name": "GPU of tomorrow"}]}
    report = analyze(trace_of(*engine_events(), **unknown)).report
    answer = report.answer
    assert (answer.limit_ns, answer.limit_bound) == (None, None)
    assert not any(part.limit_ns is not None for part in answer.parts)
    assert "the limit is not known: the bandwidth of this device is not; give it with --peak" in (
        answer.because
    )
