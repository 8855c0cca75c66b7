import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.kernels.host.weights import NarrowFormat
from decodescope.variants.model.loading import check_fits, load_model, loaded_model
from decodescope.variants.model.quantized_weights import Quantization, weight_tensors
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.source import Preset, resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from tests.helpers import families

SMALL_PRESET = Preset(
    name="small",
    hub_id="none/none",
    parameters=0,
    config={
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 4096,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
)


def save_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["def decode(step): return step"], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard_size", ["40KB", "5GB"])
def test_a_saved_checkpoint_gives_the_same_logits(
    build_small: Callable[..., Any], tmp_path: Path, tied: bool, shard_size: str
) -> None:
    saved = build_small("llama", vocab_size=300, tie_word_embeddings=tied)
    saved.save_pretrained(tmp_path, max_shard_size=shard_size)
    save_tokenizer(tmp_path)
    shards = list(tmp_path.glob("*.safetensors"))
    assert (len(shards) > 1) == (shard_size == "40KB")

    loaded = load_model(resolve_model(str(tmp_path)), "cpu", "fp32")

    ids = torch.arange(20)[None]
    torch.testing.assert_close(loaded.model(ids).logits, saved(ids).logits)
    shares_table = loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    assert shares_table == tied
    assert loaded.weights == "pretrained"
    assert loaded.max_context == 256
    assert loaded.vocab_size == 300
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("def step")) == "def step"


def test_weights_have_the_requested_dtype(build_small: Callable[..., Any], tmp_path: Path) -> None:
    build_small("qwen3").save_pretrained(tmp_path)
    loaded = load_model(resolve_model(str(tmp_path)), "cpu", "bf16")
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert loaded.tokenizer is None


def test_custom_code_runs_only_when_trusted(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    auto_map = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    config = {"model_type": "mine", "auto_map": auto_map}
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "mine.py").write_text(f"open({str(proof)!r}, 'w')\n")
    with pytest.raises(InputError, match="--trust-remote-code"):
        load_model(resolve_model(str(folder)), "cpu", "fp32")
    assert not proof.exists()


def test_random_weights_are_seeded_and_shaped_like_trained_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "decodescope.variants.model.source.presets", lambda: {"small": SMALL_PRESET}
    )
    torch.manual_seed(1)
    first = load_model(resolve_model("small@random"), "cpu", "bf16")
    torch.manual_seed(2)
    second = load_model(resolve_model("small@random"), "cpu", "bf16")
    assert first.weights == "random"
    assert first.name == "small@random"
    state = second.model.state_dict()
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
        assert tensor.dtype == torch.bfloat16, name
        if name.endswith("norm.weight"):
            assert (tensor == 1).all(), name
        elif name.endswith("bias"):
            assert (tensor == 0).all(), name
        else:
            assert 0.018 < tensor.float().std().item() < 0.022, name


def test_the_bundled_model_continues_python() -> None:
    loaded = load_model(resolve_model("tiny"), "cpu", "fp32")
    assert loaded.weights == "bundled"
    assert loaded.tokenizer is not None
    ids = torch.tensor([loaded.tokenizer.encode("import os\nimport sys\n\n\ndef main(")])
    output = loaded.model.generate(ids, max_new_tokens=12, do_sample=False)
    assert "):" in loaded.tokenizer.decode(output[0, ids.shape[1] :])


def test_too_many_positions_name_the_limit(load_small: Callable[..., Any]) -> None:
    loaded = load_small("llama")
    check_fits(loaded, DecodeWorkload(1, 200, 56))
    with pytest.raises(ModelError, match="allows 256 positions, but context 200"):
        check_fits(loaded, DecodeWorkload(1, 200, 57))


def no_weights(*args: object, **options: object) -> None:
    raise AssertionError("weights were touched")


@pytest.mark.parametrize("name", ["tiny", "llama-2-7b@random"])
def test_a_context_that_is_too_long_is_refused_before_loading_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodescope.variants.model.loading.build_random", no_weights)
    monkeypatch.setattr("decodescope.variants.model.loading._load_checkpoint", no_weights)
    workload = DecodeWorkload(context=4000, new_tokens=97)
    with pytest.raises(ModelError, match="4097"):
        load_model(resolve_model(name), "cpu", "fp32", workload=workload)


@pytest.mark.parametrize("format", [None, "int8"])
def test_own_modules_hold_the_same_weights(format: NarrowFormat | None) -> None:
    model = families.build("llama-tied")
    if format is not None:
        quantize_model("llama-tied", model, Quantization(format))
    loaded = loaded_model(model, None, "random", "llama-tied")
    before = weight_bytes_read(model, 1)
    own = loaded.with_own_modules()
    held = [tensor.data_ptr() for tensor in weight_tensors(model)]
    assert [tensor.data_ptr() for tensor in weight_tensors(own.model)] == held
    assert weight_bytes_read(own.model, 1) == before
    ids = families.prompt_ids("llama-tied", 2, 5)
    expected = model(ids).logits
    assert torch.equal(own.model(ids).logits, expected)

    own.model.model.norm = nn.Identity()
    own.model.config.rms_norm_eps = 3.0
    assert not torch.equal(own.model(ids).logits, expected)
    assert torch.equal(model(ids).logits, expected)
    assert model.config.rms_norm_eps != 3.0
    assert loaded.can_store(None)


@pytest.mark.parametrize(("family", "chosen"), [("gemma2", ["eager"]), ("gemma2-no-caps", [])])
def test_scores_with_a_soft_cap_are_not_left_to_an_attention_without(
    family: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = families.build(family), []
    monkeypatch.setattr(model, "set_attn_implementation", asked.append)
    loaded_model(model, None, "random", family)
    assert asked == chosen
