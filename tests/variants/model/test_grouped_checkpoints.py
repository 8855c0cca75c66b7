"""Checkpoints whose weights have 4 bits are read without rounding anything."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    CompressedTensorsConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
)

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model import loading, workload_costs
from decodescope.variants.model.grouped import matrix
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.stored_quantization import require_format
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import model_bytes
from decodescope.variants.spec import VariantSpec
from tests.helpers import families
from tests.variants.model.broken_checkpoints import with_config
from tests.variants.model.grouped_checkpoints import (
    LAYOUTS,
    SIZES,
    Packed,
    both_groups,
    save_mixed,
    save_packed,
    with_one_layer,
)
from tests.variants.model.quantized_checkpoints import (
    WEIGHTS,
    Layout,
    compressed_tensors,
    save_quantized,
)

FAMILY = "llama-biased"
ITS_OWN = {
    name: layout
    for name, layout in LAYOUTS.items()
    # Its later releases read no such order any more.
    if layout.config["quant_method"] == "compressed-tensors" and layout.ordered
}


def load(folder: Path, dtype: Any = "fp32") -> LoadedModel:
    return load_model(resolve_model(str(folder)), "cpu", dtype)


def linears(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of every Linear layer."""
    return {
        name: module.convert(module.data, module.scale, torch.float32, module.packing)
        if isinstance(module, QuantizedLinear)
        else module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | QuantizedLinear)
    }


def assert_loaded_as(expected: torch.nn.Module, folder: Path) -> None:
    loaded = load(folder).model
    mine, theirs = linears(loaded), linears(expected)
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name]), name
    ids = families.prompt_ids(FAMILY, 2, 9)
    assert torch.equal(loaded(ids).logits, expected(ids).logits)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_layout_gives_the_weights_of_the_dequantised_model(
    layout: Packed, tmp_path: Path
) -> None:
    expected = save_packed(tmp_path, layout)
    loaded = load(tmp_path)
    packed = [part for part in loaded.model.modules() if isinstance(part, QuantizedLinear)]
    assert len(packed) == (14 if layout.stays else 0)
    mine, theirs = linears(loaded.model), linears(expected)
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name]), name
    ids = families.prompt_ids(FAMILY, 2, 9)
    assert torch.equal(loaded.model(ids).logits, expected(ids).logits)
    (finding,) = loaded.findings
    assert ("are repacked, codes and scales unchanged" in finding.message) == layout.stays
    assert ("are dequantised to the run's dtype (" in finding.message) != layout.stays


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
@pytest.mark.parametrize("layout", ITS_OWN.values(), ids=list(ITS_OWN))
def test_the_package_that_wrote_it_reads_the_same_weights(layout: Packed, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    save_packed(tmp_path, layout)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype="float32", quantization_config=CompressedTensorsConfig(dequantize=True)
    )
    # It computes weights in the dtype of their scales.
    rounded = layout.scales if layout.scales.itemsize == 2 else torch.float32
    mine = linears(load(tmp_path).model)
    for name, weight in linears(theirs).items():
        expected = mine[name] if name == "lm_head" else mine[name].to(rounded).float()
        assert torch.equal(expected, weight), name


def test_matrices_of_a_checkpoint_that_also_reads_images_are_found(tmp_path: Path) -> None:
    """Gemma 3 is published with `language_model.` before the names of its decoder."""
    expected = save_packed(tmp_path, LAYOUTS["compressed-tensors"], "gemma3")
    stored = load_file(tmp_path / WEIGHTS)
    config = json.loads((tmp_path / "config.json").read_text())
    quantization = config.pop("quantization_config")
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    outer = Gemma3Config(text_config=config, vision_config=vision, mm_tokens_per_image=4)
    tensors = {f"language_model.{key}": value for key, value in stored.items()}
    for key, value in Gemma3ForConditionalGeneration(outer).state_dict().items():
        if "vision" in key or "projector" in key:
            tensors[key.removeprefix("model.")] = value.clone()
    save_file(tensors, tmp_path / WEIGHTS)
    fields = outer.to_dict() | {"quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert_loaded_as(expected, tmp_path)


def test_a_head_of_its_own_may_have_4_bits(tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS["compressed-tensors"], head=True)
    (tmp_path / "config.json").write_text(
        json.dumps(
            json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
        )
    )
    loaded = load(tmp_path)
    assert isinstance(loaded.model.lm_head, QuantizedLinear)
    ids = families.prompt_ids(FAMILY, 2, 9)
    assert torch.equal(loaded.model(ids).logits, expected(ids).logits)


def test_matrices_of_8_and_4_bits_are_one_model(tmp_path: Path) -> None:
    channels = replace(LAYOUTS["compressed-tensors, channels"], sizes={})
    expected = save_packed(tmp_path / "4", channels)
    fp8 = save_quantized(tmp_path / "8", FAMILY, Layout(compressed_tensors({})))
    mixed, others = (load_file(tmp_path / bits / WEIGHTS) for bits in "48")
    for name in [name for name in mixed if "down_proj.weight" in name]:
        del mixed[name]
    save_file(
        mixed | {key: others[key] for key in others if "down_proj.weight" in key},
        tmp_path / "4" / WEIGHTS,
    )
    for layer, other in zip(expected.model.layers, fp8.model.layers, strict=True):
        layer.mlp.down_proj.weight = other.mlp.down_proj.weight
    config = json.loads((tmp_path / "4" / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"]
    groups["group_1"] = compressed_tensors({})["config_groups"]["group_0"]
    config["quantization_config"]["format"] = "mixed-precision"
    (tmp_path / "4" / "config.json").write_text(json.dumps(config))
    loaded = load(tmp_path / "4")
    ids = families.prompt_ids(FAMILY, 2, 9)
    assert torch.equal(loaded.model(ids).logits, expected(ids).logits)
    (finding,) = loaded.findings
    assert "12 of the checkpoint's matrices (compressed-tensors int4" in finding.message
    assert "; 2 8-bit matrices of the checkpoint (float8_e4m3fn) are read" in finding.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("compressed-tensors", "compressed-tensors, channels"),
        ("compressed-tensors", "compressed-tensors, actorder group"),
        ("compressed-tensors", "compressed-tensors in bf16, zero points"),
        ("compressed-tensors", "NVFP4 of compressed-tensors"),
        ("compressed-tensors, channels", "MXFP4 of compressed-tensors"),
        ("MXFP4 of compressed-tensors", "NVFP4 of compressed-tensors"),
    ],
)
@pytest.mark.parametrize("exchanged", [False, True])
def test_each_matrix_has_one_of_several_schemes(
    one: str, other: str, exchanged: bool, tmp_path: Path
) -> None:
    layouts = [replace(LAYOUTS[name], sizes=SIZES) for name in (other, one)]
    fields = both_groups(*layouts)
    first, second = reversed(layouts) if exchanged else layouts
    expected = save_mixed(tmp_path, first, second, "down_proj", fields)
    assert_loaded_as(expected, tmp_path)


GPTQ, DOWN = LAYOUTS["GPTQ"], "+:.*down_proj"


@pytest.mark.parametrize(
    ("changes", "second"),
    [
        ({"group_size": 16}, replace(GPTQ, group=16)),
        ({"group_size": -1}, replace(GPTQ, group=0)),
        ({"sym": True}, LAYOUTS["GPTQ, symmetric"]),
        ({"desc_act": True}, LAYOUTS["GPTQ, desc_act"]),
    ],
    ids=["group_size", "channels", "sym", "desc_act"],
)
@pytest.mark.parametrize("exchanged", [False, True])
def test_dynamic_of_gptq_changes_the_scheme_of_modules(
    changes: dict[str, Any], second: Packed, exchanged: bool, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"dynamic": {DOWN: changes, "-:.*lm_head": {}}}
    first = GPTQ
    if exchanged:
        others = {name: GPTQ.config[name] for name in changes}
        first, second, fields = second, first, changes | {"dynamic": {DOWN: others}}
    expected = save_mixed(tmp_path, first, second, "down_proj", fields)
    assert_loaded_as(expected, tmp_path)


def test_dynamic_of_gptq_leaves_modules_out(tmp_path: Path) -> None:
    expected = save_packed(tmp_path, GPTQ)
    tensors = load_file(tmp_path / WEIGHTS)
    plain = {key: value for key, value in tensors.items() if ".down_proj." not in key}
    for name, module in expected.named_modules():
        if name.endswith("down_proj"):
            plain[f"{name}.weight"] = module.weight
            plain[f"{name}.bias"] = module.bias
    save_file(plain, tmp_path / WEIGHTS)
    with_config(quantization_config=GPTQ.config | {"dynamic": {"-:.*down_proj": {}}})(tmp_path)
    assert_loaded_as(expected, tmp_path)


def test_groups_of_two_sizes_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    """160 columns are two groups of 96 or of 128."""
    second = replace(GPTQ, group=128)
    fields = {"group_size": 96, "dynamic": {DOWN: {"group_size": 128}}}
    first = replace(GPTQ, group=96, sizes=SIZES)
    save_mixed(tmp_path, first, second, "down_proj", fields)
    words = r"down_proj.qweight is of 2 groups .* of groups of 96 and 128 by config.json; use the"
    with pytest.raises(ModelError, match=words):
        load(tmp_path)


def test_of_several_schemes_the_one_with_whole_groups_counts(tmp_path: Path) -> None:
    """Groups of 33 columns and of 32 are as many in this model."""
    expected = save_packed(tmp_path, LAYOUTS["compressed-tensors"])
    config = json.loads((tmp_path / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"]
    (scheme,) = groups.values()
    other = scheme | {"weights": scheme["weights"] | {"group_size": 33}}
    config["quantization_config"]["config_groups"] = {"group_0": other, "group_1": scheme}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ids = families.prompt_ids(FAMILY, 2, 9)
    assert torch.equal(load(tmp_path).model(ids).logits, expected(ids).logits)


def test_memory_is_that_of_the_files_and_a_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch's allocator counts it."""
    monkeypatch.setattr(matrix, "_BLOCK", 1 << 11)
    monkeypatch.setattr(loading, "_FEW", 1 << 11)
    expected = save_packed(tmp_path, with_one_layer(LAYOUTS["NVFP4 of ModelOpt"]))
    layer = expected.model.layers[0].to(torch.bfloat16)
    layer_bytes = sum(weight.nbytes for weight in layer.parameters())
    stored = sum(tensor.nbytes for tensor in load_file(tmp_path / WEIGHTS).values())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        loaded = load(tmp_path, "bf16")
    assert 0 < model_bytes(loaded.model) < stored
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    totals = [each["args"]["Total Allocated"] for each in events if each["name"] == "[memory]"]
    assert max(totals) - totals[0] < stored + layer_bytes


def test_memory_is_checked_for_the_packed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = save_packed(tmp_path, LAYOUTS["GPTQ"])
    workload = DecodeWorkload(1, 2, 2, "fp32")
    needed = model_bytes(load(tmp_path).model)
    enough = needed + 90_000
    assert enough < 0.5 * model_bytes(expected)
    for free_bytes, fits in ((enough, True), (needed, False)):
        monkeypatch.setattr(workload_costs, "free_host_bytes", lambda free=free_bytes: free)
        with nullcontext() if fits else pytest.raises(MissingRequirement, match="not enough mem"):
            load_model(resolve_model(str(tmp_path)), "cpu", "fp32", workload=workload)


@pytest.mark.parametrize(
    ("name", "format", "stored"),
    [
        ("compressed-tensors", "int4", "int4_g32"),
        ("GPTQ", "int8", "int4_asym"),
        ("NVFP4 of ModelOpt", "mxfp4", "nvfp4"),
        ("MXFP4 of compressed-tensors", "bf16", "mxfp4"),
    ],
)
def test_another_format_than_that_of_the_checkpoint_is_refused(
    name: str, format: str, stored: str
) -> None:
    config = {"quantization_config": LAYOUTS[name].config}
    require_format("mine", config, VariantSpec.parse(f"fused+{stored}"))
    with pytest.raises(InputError, match=f"weights in {format}, but mine is stored in {stored};"):
        require_format("mine", config, VariantSpec.parse(f"fused+{format}"))
