import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.steps.fused.kv_cache import new_kv_cache, prefill
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.rope_tables import rope_tables
from tests.helpers.families import CONFIGS, FAMILIES, ORIGINAL_MAX, WINDOW, build, prompt_ids
from tests.helpers.reference_step import reference_step

BATCH, CONTEXT, CAPACITY = 2, 11, 24
MERGED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


def storages(model: Any) -> dict[int, int]:
    """Bytes of every distinct storage behind the model's parameters, by address."""
    parameters = [parameter.untyped_storage() for parameter in model.parameters()]
    return {storage.data_ptr(): storage.nbytes() for storage in parameters}


@torch.no_grad()
def forced_logits(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """transformers' logits [batch, vocabulary] after the prompt and after each later id."""
    past = DynamicCache(config=model.config)
    chunks = [ids[:, :CONTEXT], *ids[:, CONTEXT:].split(1, dim=1)]
    return [
        model(input_ids=chunk, past_key_values=past, use_cache=True, logits_to_keep=1).logits[:, -1]
        for chunk in chunks
    ]


def test_the_steps_reach_every_length_that_changes_something() -> None:
    assert WINDOW < CONTEXT < ORIGINAL_MAX < CAPACITY


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parts_say_all_that_a_step_needs(name: str, device: str) -> None:
    model = build(name, device=device)
    ids = prompt_ids(name, BATCH, CAPACITY).to(device)
    expected = forced_logits(model, ids)

    parts = fused_model(model)
    ropes = rope_tables(model, parts, CAPACITY)
    cache = new_kv_cache(parts, BATCH, CAPACITY)
    for one in (*cache.k, *cache.v):
        one.fill_(torch.nan)
    first = prefill(model, ids[:, :CONTEXT], cache)

    # Experts that are laid out anew are multiplied by other routines, which round differently.
    atol = 2e-6 if name == "gpt-oss" else 0
    torch.testing.assert_close(first, expected[0], rtol=0, atol=atol)
    assert len(expected) == 1 + CAPACITY - CONTEXT
    for position in range(CONTEXT, CAPACITY):
        logits = reference_step(parts, ropes, cache, ids[:, position], position)
        theirs = expected[1 + position - CONTEXT].double()
        error = (logits - theirs).norm(dim=-1) / theirs.norm(dim=-1)
        assert error.max() < 1e-5, f"position {position}: {error.tolist()}"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_random_models_are_no_trivial_subjects(name: str, device: str) -> None:
    ids = prompt_ids(name, BATCH, CAPACITY).to(device)
    logits = torch.stack(forced_logits(build(name, device=device), ids))
    assert logits.argmax(-1).unique().numel() > 10
    assert logits.std() > 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FAMILIES)
def test_merging_changes_neither_values_nor_memory(
    name: str, dtype: torch.dtype, device: str
) -> None:
    model = build(name, dtype, device=device)
    ids = prompt_ids(name, BATCH, CONTEXT + 2).to(device)
    parameters = {
        key: (parameter, parameter.clone()) for key, parameter in model.named_parameters()
    }
    bytes_before = sum(storages(model).values())
    read_before = weight_bytes_read(model, BATCH)
    logits_before = forced_logits(model, ids)

    fused_model(model)

    for key, parameter in model.named_parameters():
        assert parameter is parameters[key][0]
        assert torch.equal(parameter, parameters[key][1])
    assert sum(storages(model).values()) == bytes_before
    assert weight_bytes_read(model, BATCH) == read_before
    for after, before in zip(forced_logits(model, ids), logits_before, strict=True):
        assert torch.equal(after, before)


def test_merged_matrices_are_the_models_own_memory(device: str) -> None:
    model = build("qwen3", device=device)
    parts = fused_model(model)
    attention, mlp = model.model.layers[1].self_attn, model.model.layers[1].mlp
    rows = {
        attention.q_proj: parts.layers[1].qkv.data[:192],
        attention.k_proj: parts.layers[1].qkv.data[192:288],
        attention.v_proj: parts.layers[1].qkv.data[288:],
        mlp.gate_proj: parts.layers[1].mlp.gate_up.data[:136],
        mlp.up_proj: parts.layers[1].mlp.gate_up.data[136:],
    }
    for linear, view in rows.items():
        assert linear.weight.data_ptr() == view.data_ptr()
        assert linear.weight.shape == view.shape


def test_a_second_call_finds_the_matrices_merged(device: str) -> None:
    model = build("qwen2", device=device)
    once, addresses = fused_model(model), storages(model)
    again = fused_model(model)
    assert storages(model) == addresses
    for one, two in zip(once.layers, again.layers, strict=True):
        for a, b in ((one.qkv, two.qkv), (one.mlp.gate_up, two.mlp.gate_up)):
            assert (a.data.data_ptr(), a.data.shape) == (b.data.data_ptr(), b.data.shape)
            assert torch.equal(a.data, b.data)


def test_parts_of_one_storage_in_another_order_are_merged_again(device: str) -> None:
    model = build("llama2", device=device)
    mlp = model.model.layers[0].mlp
    gate, up = mlp.gate_proj.weight.clone(), mlp.up_proj.weight.clone()
    backwards = torch.cat((up, gate))
    mlp.up_proj.weight.data, mlp.gate_proj.weight.data = backwards.chunk(2)
    parts = fused_model(model)
    assert torch.equal(parts.layers[0].mlp.gate_up.data, torch.cat((gate, up)))


def test_a_class_of_the_checkpoint_is_refused_before_weights_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("llama2").save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    auto_map = {"AutoModelForCausalLM": "mine.Mine"}
    (tmp_path / "config.json").write_text(json.dumps(fields | {"auto_map": auto_map}))
    source = (
        "from transformers import LlamaForCausalLM\n\n\nclass Mine(LlamaForCausalLM):\n    ...\n"
    )
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "code")
    )
    monkeypatch.syspath_prepend(tmp_path / "code")
    asked = {"variant": "fused", "model": str(tmp_path), "device": "cpu", "batch": 1, "tokens": 2}
    # Without trust, transformers' own class is loaded.
    prepare(WorkerConfig(**asked, context=5), lambda stage: None)
    monkeypatch.delattr("decodescope.variants.model.loading._load_checkpoint")
    with pytest.raises(ModelError, match="Mine is code of the checkpoint"):
        prepare(WorkerConfig(**asked, context=5, trust_remote_code=True), lambda stage: None)


def test_a_decoder_of_another_type_than_config_json_names_is_refused() -> None:
    model = build("gemma4")
    model.config.model_type = "gemma3_text"
    with pytest.raises(ModelError, match="model_type gemma3_text, which transformers reads as gem"):
        fused_model(model)


def test_columns_of_one_storage_are_no_merged_rows(device: str) -> None:
    model = build("llama2", device=device)
    mlp = model.model.layers[0].mlp
    gate, up = mlp.gate_proj.weight.clone(), mlp.up_proj.weight.clone()
    columns = torch.cat((gate.T, up.T))
    mlp.gate_proj.weight.data, mlp.up_proj.weight.data = (half.T for half in columns.chunk(2))
    parts = fused_model(model)
    assert torch.equal(parts.layers[0].mlp.gate_up.data, torch.cat((gate, up)))


def test_a_model_cast_after_merging_is_merged_again(device: str) -> None:
    model = build("llama2", torch.bfloat16, device=device)
    fused_model(model)
    model.float()
    parts = fused_model(model)
    assert parts.layers[0].qkv.data.dtype == torch.float32
    assert torch.equal(parts.layers[0].qkv.data[:96], model.model.layers[0].self_attn.q_proj.weight)


def test_sizes_windows_and_ties(device: str) -> None:
    parts = fused_model(build("qwen2-mixed-window", device=device))
    assert [layer.window for layer in parts.layers] == [None, WINDOW]
    assert (parts.hidden, parts.intermediate, parts.vocab) == (96, 136, 101)
    assert (parts.heads, parts.layers[0].kv_heads, parts.layers[0].head_dim) == (3, 1, 32)
    assert parts.scale == pytest.approx(32**-0.5)
    assert parts.head.data.data_ptr() != parts.embedding.data.data_ptr()
    tied = fused_model(build("qwen2", device=device))
    assert tied.head.data.data_ptr() == tied.embedding.data.data_ptr()


def test_biases_and_qk_norms_are_where_the_model_has_them(device: str) -> None:
    biased = fused_model(build("llama-biased", device=device)).layers[0]
    assert all(
        m.bias is not None for m in (biased.qkv, biased.o, biased.mlp.gate_up, biased.mlp.down)
    )
    qwen2 = fused_model(build("qwen2", device=device)).layers[0]
    assert qwen2.qkv.bias is not None
    assert (qwen2.o.bias, qwen2.mlp.gate_up.bias, qwen2.mlp.down.bias) == (None, None, None)
    assert qwen2.qk_norm is None
    model = build("qwen3", device=device)
    norm = fused_model(model).layers[0].qk_norm
    assert norm is not None
    assert torch.equal(norm.q_weight, model.model.layers[0].self_attn.q_norm.weight)
    assert torch.equal(norm.k_weight, model.model.layers[0].self_attn.k_norm.weight)
