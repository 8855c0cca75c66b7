"""The fused step on a CUDA device: its graphs, its launches under the profiler, its accuracy."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.operation import Launch, Operation
from decodescope.variants.comparing.accuracy import forced_logits
from decodescope.variants.comparing.accuracy_text import scored_text
from decodescope.variants.measuring.measure import Measurement, measure_run
from decodescope.variants.measuring.window import Subject, record_reference
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.registry import build_variant
from decodescope.variants.spec import PARTS
from decodescope.variants.steps.eager_step import EagerStep
from decodescope.variants.steps.fused import fused_step
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.program import PlacedOperation
from tests.helpers.fused_steps import (
    assert_logits_agree,
    decoded,
    fused,
    ids_of,
    load_family,
    prompt_of,
)
from tests.helpers.whole_windows import whole_window

pytestmark = [
    pytest.mark.gpu,
    # Warnings of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BATCHES = (1, 2, 8, 16)
FAMILIES = (
    "llama-tied",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3-moe-some-dense",
    "qwen2-moe",
    "glm4-moe",
    "mixtral",
    "gpt-oss",
    "phi3-partial",
    "smollm3",
    "olmo3",
    "gemma2",
    "gemma3",
    "gemma4",
    "gemma4-inputs",
    "gemma4-moe",
    "granite",
    "glm4",
    "cohere2",
)


@pytest.fixture(scope="module")
def session() -> ProfilerSession:
    session = ProfilerSession("cuda")
    session.warm_up()
    return session


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_graphs_tokens_are_those_of_transformers(family: str, batch: int) -> None:
    loaded = load_family(family, "cuda")
    workload = DecodeWorkload(batch, 5, 20, "fp32")
    step, eager = fused(loaded, workload, "fused+graph"), EagerStep(loaded, workload)
    prompt = prompt_of(loaded, workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    tokens = decoded(step, 20)
    assert torch.equal(tokens, decoded(eager, 20))
    assert step.plan.buffers.position.item() == step.position == 25
    step.reset(9)
    assert torch.equal(decoded(step, 16), tokens[:, 4:])


def test_the_bundled_model_writes_what_transformers_writes() -> None:
    loaded = load_model(resolve_model("tiny"), "cuda", "fp32")
    workload = DecodeWorkload(2, 24, 100, "fp32")
    step, eager = fused(loaded, workload, "fused+graph"), EagerStep(loaded, workload)
    prompt = prompt_of(loaded, workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    assert torch.equal(decoded(step, 100), decoded(eager, 100))


@pytest.mark.parametrize(
    "spec", ["fused", "fused+graph", "fused-head", "fused+graph-attention", "fused-qkv-norm"]
)
@pytest.mark.parametrize("sampling", [None, SamplingSettings(0.9, top_k=20, top_p=0.9, seed=0)])
def test_a_step_does_not_synchronise(spec: str, sampling: SamplingSettings | None) -> None:
    loaded = load_family("qwen3", "cuda", torch.bfloat16)
    workload = DecodeWorkload(2, 5, 20, sampling=sampling)
    step = fused(loaded, workload, spec)
    step.prefill(prompt_of(loaded, workload))
    step.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        decoded(step, 10)
        step.reset(6)
        decoded(step, 19)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("context", "new_tokens"), [(1, 3), (63, 4)])
def test_a_replay_gives_the_bits_of_the_launches(
    context: int, new_tokens: int, batch: int, dtype: DType
) -> None:
    loaded = load_family("qwen3", "cuda", DTYPES[dtype])
    workload = DecodeWorkload(batch, context, new_tokens, dtype)
    steps = [fused(loaded, workload, spec) for spec in ("fused", "fused+graph")]
    prompt = prompt_of(loaded, workload)
    launched, replayed = (step.prefill(prompt) for step in steps)
    assert torch.equal(launched, replayed)
    for seed in range(new_tokens):
        ids = ids_of(loaded, batch, seed)
        # The first forced step of a graph variant is launched, so the second one counts.
        steps[1].forced_step(ids)
        steps[1].reset(context + seed)
        launched, replayed = (step.forced_step(ids) for step in steps)
        assert torch.equal(launched, replayed)
        for step in steps:
            step.reset(context + seed)
        launched, replayed = (step.step() for step in steps)
        assert torch.equal(launched, replayed)
    for name in ("k", "v"):
        launched, replayed = (torch.stack(getattr(step.plan.cache, name)) for step in steps)
        assert torch.equal(launched, replayed)


@pytest.mark.parametrize("options", [f"-{part}" for part in PARTS])
@pytest.mark.parametrize("batch", [1, 2])
def test_every_ablation_can_be_captured(options: str, batch: int) -> None:
    loaded = load_family("qwen3-biased", "cuda")
    workload = DecodeWorkload(batch, 20, 8, "fp32")
    step = fused(loaded, workload, f"fused+graph{options}")
    eager = EagerStep(loaded, workload)
    prompt = prompt_of(loaded, workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    ids = ids_of(loaded, batch, seed=1)
    for _ in range(2):
        assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(decoded(step, 6), decoded(eager, 6))


@pytest.mark.parametrize("left_out", ["", "-head"])
def test_a_graph_draws_again_at_each_position(left_out: str) -> None:
    loaded = load_family("llama-tied", "cuda")
    sampling = SamplingSettings(1.2, top_k=50, top_p=0.9, seed=5)
    workload = DecodeWorkload(2, 5, 20, "fp32", sampling)
    step, eager = fused(loaded, workload, f"fused+graph{left_out}"), EagerStep(loaded, workload)
    prompt = prompt_of(loaded, workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    tokens = decoded(step, 20)
    assert torch.equal(tokens, decoded(eager, 20))
    step.reset(5)
    assert torch.equal(decoded(step, 20), tokens)


def test_two_graphs_of_one_model_do_not_disturb_each_other() -> None:
    loaded = load_family("llama2", "cuda", torch.bfloat16)
    workload = DecodeWorkload(1, 11, 30)
    prompts = [prompt_of(loaded, workload, seed) for seed in (1, 2)]
    alone = []
    for prompt in prompts:
        step = fused(loaded, workload, "fused+graph")
        step.prefill(prompt)
        alone.append(decoded(step, 30))
    assert not torch.equal(*alone)

    steps = [fused(loaded, workload, "fused+graph") for _ in prompts]
    for step, prompt in zip(steps, prompts, strict=True):
        step.prefill(prompt)
    pairs = [[step.step() for step in steps] for _ in range(30)]
    for number, expected in enumerate(alone):
        assert torch.equal(torch.stack([pair[number] for pair in pairs], dim=1), expected)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", ["llama2", "qwen3"])
def test_a_token_is_one_launch_call_and_every_op_has_its_range(
    family: str, batch: int, session: ProfilerSession, tmp_path: Path
) -> None:
    loaded = load_family(family, "cuda", torch.bfloat16)
    analysis = measured_window(loaded, batch, session, tmp_path / "window.json")
    report = analysis.report
    layers = len(loaded.model.model.layers)
    assert report.launches.graph_launches == len(report.steps) == 3
    assert {step.launch_calls for step in report.steps} == {1}
    expected = 5 * layers + 2 if batch == 1 else 7 * layers + 3
    assert {step.gpu_ops for step in report.steps} == {expected}
    attribution = report.attribution
    assert attribution is not None
    assert (attribution.partial, attribution.none) == (0, 0)
    paths = {one.path: one for one in report.ranges}
    parts, head = ["input_norm+attention", "post_attention_norm+mlp"], "final_norm+lm_head"
    if batch > 1:
        parts, head = [one for part in parts for one in part.split("+")], "lm_head"
    for number in range(layers):
        for part in parts:
            assert paths[f"decode_step/model/layer.{number}/{part}"].confidence == "exact"
    assert f"decode_step/model/{head}" in paths


@pytest.mark.parametrize(
    ("variant", "sampling"),
    [("fused+graph", SamplingSettings(0.8, 40, 0.9, 7)), ("fused+graph-head", None)],
)
def test_what_follows_the_model_has_its_range_too(
    variant: str, sampling: SamplingSettings | None, session: ProfilerSession, tmp_path: Path
) -> None:
    loaded = load_family("llama2", "cuda", torch.bfloat16)
    path = tmp_path / "window.json"
    report = measured_window(loaded, 1, session, path, variant, sampling).report
    attribution = report.attribution
    assert attribution is not None
    assert (attribution.partial, attribution.none) == (0, 0)
    paths = {one.path: one for one in report.ranges}
    for known in ("decode_step/sampling", "decode_step/model/layer.1/post_attention_norm+mlp"):
        assert paths[known].confidence == "exact"


def measured_window(
    loaded: LoadedModel,
    batch: int,
    session: ProfilerSession,
    path: Path,
    variant: str = "fused+graph",
    sampling: SamplingSettings | None = None,
) -> Analysis:
    """The profiled window of a run of a graph, with its reference."""
    workload = DecodeWorkload(batch, 11, 40, sampling=sampling)
    step = build_variant(variant, loaded, workload, "cuda")
    subject, prompt = Subject(loaded, workload, "cuda", variant), prompt_of(loaded, workload)
    ungraphed = step.ungraphed()
    assert ungraphed is not None
    reference = record_reference(ungraphed, subject, prompt, session)
    measured: list[Measurement] = []
    analysis = whole_window(
        lambda: measured.append(measure_run(step, subject, prompt, session, path, reference)), path
    )
    again = build_variant(variant.replace("+graph", ""), loaded, workload, "cuda")
    again.prefill(prompt)
    expected = decoded(again, 39).tolist()
    assert [ids[1:] for ids in measured[-1].output_token_ids] == expected
    return analysis


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("batch", [1, 4])
def test_logits_are_no_worse_than_eagers(batch: int, dtype: DType) -> None:
    loaded = load_model(resolve_model("tiny"), "cuda", dtype)
    scored = scored_text(loaded, None)
    workload = DecodeWorkload(batch, scored.context, scored.positions, dtype)
    given = {
        name: forced_logits(build_variant(name, loaded, workload, "cuda"), scored, batch)
        for name in ("eager", "fused+graph")
    }
    loaded.model.float()
    exact = EagerStep(loaded, replace(workload, dtype="fp32"))
    expected = forced_logits(exact, scored, batch)
    errors = {name: ((logits - expected).norm()).item() for name, logits in given.items()}
    assert 0 < errors["fused+graph"] <= 1.1 * errors["eager"], errors


@pytest.mark.parametrize(("dtype", "least"), [("bf16", 0.99999), ("fp16", 0.999999)])
@pytest.mark.parametrize("cached", [64, 128, 256, 512])
def test_the_attention_block_points_where_fp32_points(
    cached: int, dtype: DType, least: float
) -> None:
    loaded = attention_alone(DTYPES[dtype])
    reference = LoadedModel(deepcopy(loaded.model).float(), None, "random", "exact", None)
    workload = DecodeWorkload(1, cached - 1, 1, dtype)
    prompt = prompt_of(loaded, workload)
    step = fused(loaded, workload, "fused")
    step.prefill(prompt)
    ids = ids_of(loaded, 1, seed=1)
    step.forced_step(ids)

    outputs: list[Any] = []
    exact = EagerStep(reference, replace(workload, dtype="fp32"))
    exact.prefill(prompt)
    norm = reference.model.model.norm
    handle = norm.register_forward_pre_hook(lambda module, args: outputs.append(args[0]))
    exact.forced_step(ids)
    handle.remove()
    expected = outputs[-1].reshape(1, -1)
    assert cosine_similarity(step.plan.buffers.x.float(), expected).item() >= least


def attention_alone(dtype: torch.dtype) -> LoadedModel:
    """One layer of Qwen2.5-0.5B's shape whose MLP adds nothing, so that what comes out is the
    attention block's sum with the residual."""
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=1000,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=1,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.02,
        tie_word_embeddings=True,
        use_sliding_window=False,
    )
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    model.model.layers[0].mlp.down_proj.weight.zero_()
    return LoadedModel(model.to("cuda"), None, "random", "attention", None)


class FailsInCaptures(Operation):
    """Launches nothing, and cannot be captured."""

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return ()


def test_a_failed_capture_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_family("llama2", "cuda")

    def with_a_failing_one(*of: Any) -> tuple[PlacedOperation, ...]:
        return (*step_operations(*of), PlacedOperation(("model",), FailsInCaptures()))

    monkeypatch.setattr(fused_step, "step_operations", with_a_failing_one)
    with pytest.raises(MissingRequirement, match="cannot be captured") as caught:
        fused(loaded, DecodeWorkload(1, 5, 3, "fp32"), "fused+graph")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    step = fused(loaded, DecodeWorkload(1, 5, 3, "fp32"), "fused+graph")
    step.prefill(prompt_of(loaded, DecodeWorkload(1, 5, 3, "fp32")))
    step.step()
