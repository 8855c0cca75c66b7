"""gpt-fast's model on transformers' weights computes transformers' logits, at every position."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import require_variant
from decodescope.variants.steps.eager_step import EagerStep
from decodescope_peers import GPT_FAST, gpt_fast
from decodescope_peers.gpt_fast import GptFastStep, checked_module

SCALED = {
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}
LAST, CONTEXT = 70, 11
Load = Callable[..., Any]


@pytest.fixture(params=["stand-in", "checkout"])
def module(request: pytest.FixtureRequest, stand_in: Any) -> Any:
    if request.param == "stand-in":
        return stand_in
    if (reason := _missing()) is not None:
        pytest.skip(reason)
    return import_module("model")


def _missing() -> str | None:
    assert GPT_FAST.missing is not None
    return GPT_FAST.missing()


def step_of(loaded: Any, module: Any, batch: int = 2) -> GptFastStep:
    workload = DecodeWorkload(batch, CONTEXT, LAST - CONTEXT, "fp32")
    return GptFastStep(loaded, workload, module, lambda decode: decode)


@pytest.mark.parametrize("config", [{}, SCALED, {"tie_word_embeddings": True}])
def test_logits_are_those_of_transformers(
    load_llama: Load, module: Any, config: dict[str, Any]
) -> None:
    loaded = load_llama(**config)
    step = step_of(loaded, module)
    ids = torch.randint(3, 97, (2, LAST), generator=torch.Generator().manual_seed(5))
    eager = EagerStep(loaded, step._workload)
    step.prefill(ids[:, :CONTEXT])
    eager.prefill(ids[:, :CONTEXT])
    for place in range(CONTEXT, LAST):
        found, expected = step.forced_step(ids[:, place]), eager.forced_step(ids[:, place])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_tokens_are_those_of_eager_and_come_again_after_a_reset(
    load_llama: Load, module: Any
) -> None:
    loaded = load_llama()
    step = step_of(loaded, module)
    prompt = torch.arange(3, 3 + 2 * CONTEXT).view(2, CONTEXT)
    eager = EagerStep(loaded, step._workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    tokens = [step.step() for _ in range(20)]
    assert torch.equal(torch.stack(tokens), torch.stack([eager.step() for _ in range(20)]))
    step.reset(CONTEXT + 5)
    assert torch.equal(step.step(), tokens[5])


def test_only_q_k_and_v_are_copied(load_llama: Load, module: Any) -> None:
    loaded = load_llama()
    before = loaded.model.model.layers[0].self_attn.q_proj.weight.clone()
    transformer = step_of(loaded, module)._transformer
    layer, theirs = transformer.layers[1], loaded.model.model.layers[1]
    assert layer.feed_forward.w1.weight.data_ptr() == theirs.mlp.gate_proj.weight.data_ptr()
    assert transformer.output.weight.data_ptr() == loaded.model.lm_head.weight.data_ptr()
    assert torch.equal(loaded.model.model.layers[0].self_attn.q_proj.weight, before)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"head_dim": 32}, "not as wide"),
        ({"attention_bias": True}, "has biases"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rotates by linear"),
    ],
)
def test_what_gpt_fast_does_not_have_is_refused(
    load_llama: Load, stand_in: Any, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        step_of(load_llama(**config), stand_in)


def test_a_checkout_on_the_path_is_enough(
    installed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if _missing() is None:
        pytest.skip("a checkout of gpt-fast is on PYTHONPATH")
    (tmp_path / "model.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Another project's module of that name.
    assert _missing() is not None
    with pytest.raises(MissingRequirement, match=r"checkout of .*gpt-fast on PYTHONPATH"):
        require_variant("gpt-fast", "cuda")
    (tmp_path / "generate.py").write_text("")
    assert require_variant("gpt-fast", "cuda").name == "gpt-fast"
    assert "model" not in sys.modules


def test_a_peer_is_named_in_suggestions(installed: None) -> None:
    with pytest.raises(InputError, match="did you mean gpt-fast"):
        require_variant("gptfast", "cuda")


def test_a_checkout_without_masks_is_refused(module: Any) -> None:
    class Old:
        def forward(self, idx: Any, input_pos: Any = None) -> None: ...

    assert checked_module(module) is module
    with pytest.raises(MissingRequirement, match=r"^variant gpt-fast: /old/model.py is older"):
        checked_module(SimpleNamespace(Transformer=Old, __file__="/old/model.py"))


@pytest.mark.parametrize("config", [{}, {"hidden_size": 128, "intermediate_size": 384}])
def test_int4_weights_are_the_nearest_of_their_groups(
    load_llama: Load,
    stand_in: Any,
    quantize: Any,
    config: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpt_fast, "_packed", lambda codes: codes)
    loaded = load_llama(vocab_size=104, **config)
    whole = step_of(loaded, stand_in)
    workload = whole._workload
    step = GptFastStep(loaded, workload, stand_in, lambda decode: decode, quantize)
    saved = 0
    for name, linear in whole._transformer.named_modules():
        if not isinstance(linear, torch.nn.Linear):
            continue
        layer = step._transformer.get_submodule(name)
        assert layer.weight.shape == (linear.out_features, layer.padded)
        scale = layer.scales_and_zeros[..., 0].T.float().repeat_interleave(128, 1)
        off = (layer.dense() - linear.weight).abs()
        # Half a step, and bf16 of the weight and of its group's middle.
        assert bool((off <= 0.5 * scale[:, : linear.in_features] + 2.0**-6).all())
        assert float(off.max()) > 0.1 * float(scale.max())
        saved += linear.weight.nbytes - layer.weight.nbytes - layer.scales_and_zeros.nbytes
    assert whole.weight_bytes_read - step.weight_bytes_read == saved
    ids = torch.arange(3, 3 + 2 * CONTEXT).view(2, CONTEXT)
    for name, linear in whole._transformer.named_modules():
        if isinstance(linear, torch.nn.Linear):
            dense = step._transformer.get_submodule(name).dense()
            linear.weight = torch.nn.Parameter(dense, requires_grad=False)
    assert torch.equal(step.prefill(ids), whole.prefill(ids))
    ids = torch.tensor([5, 9])
    torch.testing.assert_close(step.forced_step(ids), whole.forced_step(ids), rtol=1e-4, atol=1e-4)


def test_int4_layers_of_odd_sizes_are_refused(
    load_llama: Load, stand_in: Any, quantize: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_llama(vocab_size=100)
    workload = DecodeWorkload(1, 4, 5, "bf16")
    monkeypatch.setattr(gpt_fast, "_packed", lambda codes: codes)
    with pytest.raises(ModelError, match="layer output has 100 outputs, and PyTorch packs"):
        GptFastStep(loaded, workload, stand_in, lambda decode: decode, quantize)


@pytest.mark.gpu
def test_int4_codes_are_packed_as_pytorch_multiplies_them() -> None:
    generator = torch.Generator("cuda").manual_seed(2)
    codes = torch.randint(16, (64, 1024), generator=generator, dtype=torch.int32, device="cuda")
    scales = torch.rand(8, 64, 2, generator=generator, device="cuda").bfloat16()
    x = torch.randn(3, 1024, generator=generator, device="cuda").bfloat16()
    products = torch.ops.aten._weight_int4pack_mm(x, gpt_fast._packed(codes), 128, scales)
    scale, middle = scales.double().transpose(0, 1).unbind(2)
    groups = codes.double().unflatten(1, (8, 128)) - 8
    weights = (groups * scale[..., None] + middle[..., None]).flatten(1)
    expected = x.double() @ weights.T
    error = (products.double() - expected).norm() / expected.norm()
    assert error < 0.01
