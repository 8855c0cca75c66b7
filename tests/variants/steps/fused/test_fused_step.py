"""The fused step against transformers: same tokens, same logits, with any part left out."""

from dataclasses import replace

import pytest
import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_gate_up import used_experts
from decodescope.variants.measuring.window import Subject, WindowPlan, capture_info
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import FUSIONS
from tests.helpers import families
from tests.helpers.fused_steps import (
    assert_logits_agree,
    both,
    decoded,
    fused,
    ids_of,
    load_family,
    prompt_of,
)

# Beyond the windows of the families and the length at which their rotations change.
CONTEXT = families.ORIGINAL_MAX + 3


@pytest.mark.parametrize("family", families.CONFIGS)
def test_logits_and_tokens_are_those_of_transformers(family: str, device: str) -> None:
    loaded = load_family(family, device)
    step, eager = both(loaded, DecodeWorkload(1, CONTEXT, 3, "fp32"))
    ids = ids_of(loaded, 1, seed=5)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(
    ("family", "field"),
    [
        ("mixtral", {"norm_topk_prob": False}),
        ("mixtral", {"routed_scaling_factor": 2.5}),
        ("qwen3-moe", {"routed_scaling_factor": 2.5}),
    ],
)
def test_fields_of_other_mixtures_change_nothing(
    family: str, field: dict[str, float], device: str
) -> None:
    loaded = load_family(family, device, **field)
    step, eager = both(loaded, DecodeWorkload(1, CONTEXT, 2, "fp32"))
    ids = ids_of(loaded, 1, seed=5)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))


@pytest.mark.parametrize(
    "family",
    [
        "llama-biased",
        "mistral",
        "phi3-partial",
        "qwen3",
        "olmo3",
        "gemma2",
        "gemma3",
        "gemma4",
        "gemma4-inputs",
        "gemma4-moe",
        "glm4",
        "granite",
        "cohere2",
        "qwen3-moe",
        "qwen3-moe-some-dense",
        "qwen3-moe-of-all",
        "qwen3-moe-of-one",
        "qwen2-moe",
        "glm4-moe",
        "mixtral",
        "gpt-oss",
    ],
)
def test_sequences_of_a_batch_do_not_mix(family: str, device: str) -> None:
    loaded = load_family(family, device)
    step, eager = both(loaded, DecodeWorkload(3, CONTEXT, 3, "fp32"))
    ids = ids_of(loaded, 3, seed=6)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(("family", "batch"), [("llama-tied", 17), ("qwen3", 33)])
def test_many_sequences_decode_as_with_transformers(family: str, batch: int, device: str) -> None:
    loaded = load_family(family, device)
    step, eager = both(loaded, DecodeWorkload(batch, 5, 3, "fp32"))
    ids = ids_of(loaded, batch, seed=9)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(("context", "new_tokens"), [(1, 2), (63, 4)])
def test_awkward_positions_up_to_the_caches_end(context: int, new_tokens: int, device: str) -> None:
    loaded = load_family("llama-tied", device)
    step, eager = both(loaded, DecodeWorkload(1, context, new_tokens, "fp32"))
    for seed in range(new_tokens):
        assert step.position == eager.position == context + seed
        ids = ids_of(loaded, 1, seed)
        assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    with pytest.raises(ModelError, match=f"built for {context + new_tokens} positions"):
        step.step()


@pytest.mark.parametrize("left_out", [*FUSIONS, "norm-residual", "-".join(FUSIONS)])
@pytest.mark.parametrize(
    "family", ["qwen3-biased", "olmo3", "gemma2", "gemma4", "gemma4-inputs", "cohere2"]
)
def test_what_is_left_out_changes_no_token(family: str, left_out: str, device: str) -> None:
    loaded = load_family(family, device)
    step, eager = both(loaded, DecodeWorkload(1, CONTEXT, 2, "fp32"), f"fused-{left_out}")
    ids = ids_of(loaded, 1, seed=7)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(
    ("family", "left_out", "batch"),
    [
        *(("qwen3-moe", part, 1) for part in FUSIONS),
        *((family, "-".join(FUSIONS), 1) for family in families.MIXTURES),
        ("glm4-moe", "norm", 1),
        *(
            (family, "gate_up-residual", 2)
            for family in ("qwen2-moe", "gpt-oss", "glm4-moe", "gemma4-moe")
        ),
    ],
)
def test_what_is_left_out_of_a_mixture_changes_no_token(
    family: str, left_out: str, batch: int, device: str
) -> None:
    loaded = load_family(family, device)
    step, eager = both(loaded, DecodeWorkload(batch, CONTEXT, 2, "fp32"), f"fused-{left_out}")
    ids = ids_of(loaded, batch, seed=7)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(
    ("family", "words", "batch"),
    [
        ("qwen2-moe", "+fp8_e4m3", 1),
        ("qwen2-moe", "+int8", 2),
        ("gpt-oss", "", 1),
        ("gemma4-moe", "+int8", 1),
        ("gemma4-moe", "+fp8_e4m3", 2),
    ],
)
def test_what_is_left_out_of_a_mixture_in_bfloat16_changes_little(
    family: str, words: str, batch: int, device: str
) -> None:
    loaded = load_family(family, device, torch.bfloat16)
    workload = DecodeWorkload(batch, CONTEXT, 2)
    logits = []
    for left_out in ("", "-gate_up-residual"):
        step = fused(loaded, workload, f"fused{words}{left_out}")
        step.prefill(prompt_of(loaded, workload))
        logits.append(step.forced_step(ids_of(loaded, batch, seed=7)).float())
    assert (logits[1] - logits[0]).norm() < 0.03 * logits[0].norm()


@pytest.mark.parametrize("family", ["glm4-moe", "gemma4-moe"])
def test_choices_are_counted_as_the_kernels_choose(family: str, device: str) -> None:
    loaded = load_family(family, device)
    workload = DecodeWorkload(4, 5, 2, "fp32")
    step = fused(loaded, workload)
    step.prefill(prompt_of(loaded, workload))
    step.step()
    counted, logits_of = step.expert_choices(), step.plan.buffers.router_logits
    for counts, logits, experts in zip(counted, logits_of, step.plan.parts.mixtures, strict=True):
        used = used_experts(logits, experts).flatten()
        assert torch.equal(counts, torch.bincount(used, minlength=5).float())
    info = capture_info(Subject(loaded, workload, "cpu", "fused"), step, WindowPlan(0, 0, 1), None)
    used_of = map(used_experts, logits_of, step.plan.parts.mixtures)
    distinct = [len(used.unique()) for used in used_of]
    assert info.experts is not None
    assert info.experts.experts == 5
    assert info.experts.distinct == pytest.approx(sum(distinct) / len(distinct))
    shares = counted.max(dim=1).values / counted.sum(dim=1)
    assert info.experts.busiest_share == pytest.approx(float(shares.mean()))


def test_sinks_without_our_attention_change_no_token(device: str) -> None:
    loaded = load_family("gpt-oss", device)
    workload = DecodeWorkload(2, CONTEXT, 2, "fp32")
    step, eager = both(loaded, workload, "fused-rope-qkv-norm-attention-head")
    ids = ids_of(loaded, 2, seed=7)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize("left_out", ["rope", "attention-head"])
def test_what_is_left_out_of_a_batch_changes_no_token(left_out: str, device: str) -> None:
    loaded = load_family("mistral", device)
    step, eager = both(loaded, DecodeWorkload(2, CONTEXT, 2, "fp32"), f"fused-{left_out}")
    ids = ids_of(loaded, 2, seed=8)
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


def test_the_bundled_model_writes_what_transformers_writes(device: str) -> None:
    loaded = load_model(resolve_model("tiny"), device, "fp32")
    step, eager = both(loaded, DecodeWorkload(1, 24, 3, "fp32"))
    assert torch.equal(decoded(step, 3), decoded(eager, 3))


@pytest.mark.parametrize(
    ("sampling", "left_out"),
    [
        (SamplingSettings(0.8, None, None, seed=3), "-head"),
        (SamplingSettings(1.3, top_k=20, top_p=0.9, seed=4), ""),
    ],
)
def test_tokens_are_drawn_as_for_transformers_logits(
    sampling: SamplingSettings, left_out: str, device: str
) -> None:
    loaded = load_family("qwen2", device)
    workload = DecodeWorkload(2, 7, 3, "fp32", sampling)
    step, eager = both(loaded, workload, f"fused{left_out}")
    tokens = decoded(step, 2)
    assert torch.equal(tokens, decoded(eager, 2))
    assert_logits_agree(step.forced_step(tokens[:, 1]), eager.forced_step(tokens[:, 1]))
    assert step.plan.buffers.position.item() == step.position == 10
    step.reset(7)
    assert torch.equal(decoded(step, 1), tokens[:, :1])


def test_going_back_repeats_the_same_bits(device: str) -> None:
    loaded = load_family("qwen2", device)
    workload = DecodeWorkload(1, 5, 3, "fp32")
    step = fused(loaded, workload)
    first = step.prefill(prompt_of(loaded, workload))
    tokens = decoded(step, 3)
    cache = [torch.stack(one) for one in (step.plan.cache.k, step.plan.cache.v)]

    step.reset(5)
    assert step.position == 5
    assert torch.equal(step.step(), tokens[:, 0])
    logits = step.forced_step(tokens[:, 0].clone())
    step.reset(6)
    assert torch.equal(step.forced_step(tokens[:, 0].clone()), logits)
    assert torch.equal(step.step(), tokens[:, 2])
    assert torch.equal(torch.stack(step.plan.cache.k), cache[0])
    assert torch.equal(torch.stack(step.plan.cache.v), cache[1])

    step.prefill(prompt_of(loaded, workload, seed=1))
    assert torch.equal(step.prefill(prompt_of(loaded, workload)), first)
    assert torch.equal(step.step(), tokens[:, 0])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_forced_logits_are_the_callers_own(dtype: str, device: str) -> None:
    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    loaded = load_family("qwen2", device, torch_dtype)
    workload = DecodeWorkload(1, 5, 3, dtype)  # type: ignore[arg-type]
    step = fused(loaded, workload)
    step.prefill(prompt_of(loaded, workload))
    logits = step.forced_step(ids_of(loaded, 1, seed=1))
    kept = logits.clone()
    assert logits.dtype == torch_dtype
    ids = ids_of(loaded, 1, seed=2)
    assert not torch.equal(step.forced_step(ids), kept)
    assert torch.equal(logits, kept)
    assert torch.equal(step.plan.buffers.tokens[:, 6], ids)


def test_what_a_step_must_not_be_asked(device: str) -> None:
    loaded = load_family("llama2", device)
    workload = DecodeWorkload(2, 5, 3, "fp32")
    step = fused(loaded, workload)
    with pytest.raises(ModelError, match="before prefill"):
        step.step()
    with pytest.raises(InputError, match=r"prompt of shape \[2, 6\]"):
        step.prefill(torch.zeros(2, 6, dtype=torch.int64))
    step.prefill(prompt_of(loaded, workload))
    with pytest.raises(InputError, match=r"forced ids of shape \[3\]"):
        step.forced_step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="reset to position 6"):
        step.reset(6)
    assert step.position == 5


@pytest.mark.parametrize("family", families.MIXTURES)
def test_programs_share_the_router_of_a_batch(family: str, device: str) -> None:
    loaded, workload = load_family(family, device), DecodeWorkload(3, 5, 2, "fp32")
    step = fused(loaded, workload)
    router = Tile(16, 16, splits=3)
    other = step.with_tiles({**step.plan.tiles, "router": router})
    logits = []
    for one in (step, other):
        one.prefill(prompt_of(loaded, workload))
        logits.append(one.forced_step(ids_of(loaded, 3, seed=3)))
    assert_logits_agree(logits[1], logits[0])


def test_other_tiles_share_the_memory(device: str) -> None:
    loaded = load_family("llama2", device)
    workload = DecodeWorkload(1, 40, 2, "fp32")
    step = fused(loaded, workload)
    tiles = step.plan.tiles
    changed = {
        "down": replace(tiles["down"], columns=32, splits=3),
        "attention": replace(tiles["attention"], columns=16, splits=2),
    }
    other = step.with_tiles({**tiles, **changed})
    assert other.plan.cache is step.plan.cache
    assert other.plan.buffers is step.plan.buffers
    prompt = prompt_of(loaded, workload)
    for one in (step, other):
        one.prefill(prompt)
    logits = []
    for one in (step, other):
        one.reset(40)
        logits.append(one.forced_step(ids_of(loaded, 1, seed=3)))
    assert_logits_agree(logits[1], logits[0])
    step.launch_at(17)
    assert step.plan.buffers.position.item() == 18
