"""Checkpoints that are broken, incomplete, dangerous or of no model that can be decoded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

from decodescope.analyzer.errors import DecodescopeError, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from tests.helpers import families
from tests.variants.model.broken_checkpoints import (
    BROKEN,
    DOWN,
    Change,
    Weights,
    copy_of_tiny,
    sharded,
    with_weights,
    written,
)


def config_for(folder: Path, **fields: Any) -> WorkerConfig:
    asked = {"variant": "eager", "batch": 1, "tokens": 3, "device": "cpu", "prompt": "def f():"}
    return WorkerConfig(**(asked | {"model": str(folder)} | fields))


@pytest.mark.parametrize(("break_it", "words"), BROKEN.values(), ids=list(BROKEN))
def test_it_is_refused_in_one_line(break_it: Change, words: str, tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "m")
    break_it(folder)
    with pytest.raises(DecodescopeError) as caught:
        prepare(config_for(folder), lambda stage: None)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert words in message
    assert "\n" not in message
    assert len(message) < 600 + 2 * len(str(folder))
    assert not (folder / "ran").exists()


def test_a_whole_checkpoint_is_loaded_without_findings(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "m")
    assert load_model(resolve_model(str(folder)), "cpu", "fp32").findings == ()
    sharded(folder)
    assert load_model(resolve_model(str(folder)), "cpu", "fp32").findings == ()
    # It says how `generate` chooses tokens, which is not called.
    written("generation_config.json", "[]")(folder)
    assert load_model(resolve_model(str(folder)), "cpu", "fp32").findings == ()


def test_tensors_that_nothing_uses_are_a_finding(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "m")

    def add(weights: Weights) -> None:
        # Older Llama checkpoints hold the rotary frequencies, which transformers ignores.
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(32)
        weights["vision.weight"], weights["audio.weight"] = torch.ones(3), torch.ones(3)

    with_weights(add)(folder)
    report = run_variant(config_for(folder), None, lambda stage: None)
    (finding,) = (f for f in report.health.findings if f.code == "unexpected_weights")
    assert finding.message == (
        "the checkpoint has 2 tensors that the model does not use: audio.weight, vision.weight"
    )


def test_values_that_overflow_in_fp16_are_refused_there_only(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "m")
    with_weights(lambda weights: weights[DOWN][0, 0].fill_(1e6))(folder)
    load_model(resolve_model(str(folder)), "cpu", "bf16")
    with pytest.raises(ModelError, match=f"1 tensor as float16: {DOWN}; choose another --dtype"):
        load_model(resolve_model(str(folder)), "cpu", "fp16")


SIZES: dict[str, Any] = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "intermediate_size": 48}
DECODED: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4)),
    "mixtral": lambda: MixtralForCausalLM(
        MixtralConfig(**SIZES, **HEADS, num_key_value_heads=2, num_local_experts=4)
    ),
}


def test_a_model_with_convolutions_among_its_layers_is_refused(tmp_path: Path) -> None:
    kinds = ["conv", "full_attention"]
    Lfm2ForCausalLM(Lfm2Config(**SIZES, layer_types=kinds)).save_pretrained(tmp_path)
    with pytest.raises(
        ModelError, match=r"type lfm2 keeps more than K and V \(LinearAttentionLayer"
    ):
        load_model(resolve_model(str(tmp_path)), "cpu", "fp32")


def test_a_recurrent_model_is_refused_though_it_is_whole(tmp_path: Path) -> None:
    MambaForCausalLM(MambaConfig(**SIZES, state_size=4)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="type mamba keeps a recurrent state; only decoder-only"):
        load_model(resolve_model(str(tmp_path)), "cpu", "fp32")


def test_a_model_that_reads_no_prompt_is_refused(tmp_path: Path) -> None:
    # transformers reads single tokens of it.
    families.build("gemma4-inputs", hidden_size_per_layer_input=0).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="type gemma4_text fails"):
        load_model(resolve_model(str(tmp_path)), "cpu", "fp32")


@pytest.mark.parametrize("kind", DECODED)
def test_other_decoder_only_models_are_decoded(kind: str, tmp_path: Path) -> None:
    DECODED[kind]().save_pretrained(tmp_path)
    asked = config_for(tmp_path, prompt=None, prompt_ids=(1, 2, 3))
    report = run_variant(asked, None, lambda stage: None)
    assert len(report.output_token_ids[0]) == 3


def test_a_config_of_another_checkpoint_allocates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would make and fill the tensors that the checkpoint lacks."""
    folder = copy_of_tiny(tmp_path / "m")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 10**12}))

    def no_weights(*args: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("decodescope.variants.model.loading._load_checkpoint", no_weights)
    with pytest.raises(ModelError, match="different models"):
        load_model(resolve_model(str(folder)), "cpu", "fp32")
