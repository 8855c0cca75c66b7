"""Fused steps on checkpoints with 4-bit weights, against transformers on the dequantised model."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.kernels.shape_model import shape_model
from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.tile_table import tile_key
from tests.helpers.fused_steps import fused, ids_of
from tests.variants.model.grouped_checkpoints import LAYOUTS, Packed, save_packed, with_one_layer
from tests.variants.model.quantized_checkpoints import WEIGHTS
from tests.variants.steps.fused.test_quantized_checkpoint import (
    K_PROJ,
    WORKLOAD,
    assert_agrees,
    load,
)

SOME = ["AWQ", "NVFP4 of ModelOpt"]
STAYING = {name: layout for name, layout in LAYOUTS.items() if layout.stays}


@pytest.mark.parametrize("layout", STAYING.values(), ids=list(STAYING))
def test_every_layout_is_decoded_as_it_is(layout: Packed, device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, with_one_layer(layout))
    assert_agrees(load(tmp_path, device), expected)


@pytest.mark.parametrize("name", [*SOME, "GPTQ in groups of 96"])
def test_a_batch(name: str, device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS[name])
    workload = DecodeWorkload(3, 5, 3, "fp32")
    assert_agrees(load(tmp_path, device), expected, workload=workload)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # from torch.compile
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(
    ("name", "variant"),
    [*((name, "fused+graph") for name in LAYOUTS), *product(SOME, ["eager", "compiled"])],
)
def test_on_the_gpu(name: str, variant: str, batch: int, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS[name])
    workload = DecodeWorkload(batch, 5, 3, "fp32")
    assert_agrees(load(tmp_path, "cuda"), expected, variant, workload)


@pytest.mark.parametrize("name", ["GPTQ, desc_act", "compressed-tensors, groups of 16"])
def test_what_is_dequantised_is_decoded_too(name: str, device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS[name])
    assert_agrees(load(tmp_path, device), expected)


def test_a_head_in_4_bits(device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS["compressed-tensors"], head=True)
    assert_agrees(load(tmp_path, device), expected)


def test_a_gguf_file(device: str, tmp_path: Path) -> None:
    """Q4_0, its head dequantised, and Llama 3's frequencies."""
    pytest.importorskip("gguf")
    from tests.variants.model.gguf_checkpoints import MIXES, by_transformers, save_gguf

    path, factors = tmp_path / "model.gguf", np.linspace(1, 8, 32)
    save_gguf(path, MIXES["Q4_0"], rope_factors=factors)
    expected = by_transformers(path)
    expected.model.rotary_emb.inv_freq.div_(torch.from_numpy(factors).float())
    assert_agrees(load(path, device), expected)


@pytest.mark.parametrize("name", ["GPTQ", "NVFP4 of ModelOpt"])
def test_benches_measure_the_formats_of_the_files(name: str, tmp_path: Path) -> None:
    save_packed(tmp_path, LAYOUTS[name])
    source, spec = resolve_model(str(tmp_path)), VariantSpec("fused")
    parts = shape_model(source, 1, torch.bfloat16, "cpu", spec)
    loaded = fused_model(load(tmp_path, "cpu").model)
    for mine, theirs in zip(parts.layers, loaded.layers, strict=True):
        for one, other in zip(mine.matrices, theirs.matrices, strict=True):
            assert one.data.is_meta
            assert one.data.shape == other.data.shape
            assert (one.packing, one.scale is None) == (other.packing, other.scale is None)


@pytest.mark.parametrize(
    ("name", "format"),
    [("AWQ", "int4_asym in groups of 32"), ("NVFP4 of ModelOpt", "nvfp4")],
)
def test_tiles_are_those_of_its_format(name: str, format: str, tmp_path: Path) -> None:
    save_packed(tmp_path, LAYOUTS[name])
    parts = fused_model(load(tmp_path, "cpu").model)
    key = tile_key("down", step_shapes(parts, 3, 64))
    assert (key.element_bytes, key.packed) == (0, format)


def test_its_own_format_changes_nothing(device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS["compressed-tensors"])
    loaded = load(tmp_path, device)
    before = {
        name: module.data.clone()
        for name, module in loaded.model.named_modules()
        if isinstance(module, QuantizedLinear)
    }
    assert_agrees(loaded, expected, "fused+int4_g32+head16+embedding16")
    for name, words in before.items():
        assert torch.equal(loaded.model.get_submodule(name).data, words)


def test_rows_have_a_scale_in_one_part_of_a_merged_matrix(device: str, tmp_path: Path) -> None:
    """Where bfloat16 has scales that float16 lacks."""
    layout = LAYOUTS["compressed-tensors in bf16, zero points"]
    expected = save_packed(tmp_path, layout)
    tensors = load_file(tmp_path / WEIGHTS)
    tensors[f"{K_PROJ}.weight_scale"][3, 1] *= 2.0**-20
    save_file(tensors, tmp_path / WEIGHTS)
    columns = slice(layout.group, 2 * layout.group)
    expected.get_submodule(K_PROJ).weight[3, columns] *= 2.0**-20
    loaded = load(tmp_path, device)
    attention = loaded.model.get_submodule(K_PROJ.rpartition(".")[0])
    assert attention.k_proj.scale is not None
    assert attention.q_proj.scale is None
    assert_agrees(loaded, expected)


def test_formats_that_differ_within_a_matrix_run_eagerly_only(tmp_path: Path) -> None:
    first, second = LAYOUTS["compressed-tensors"], LAYOUTS["compressed-tensors, channels"]
    second = replace(second, sizes=first.sizes)
    expected, other = save_packed(tmp_path / "a", first), save_packed(tmp_path / "b", second)
    mixed, others = (load_file(tmp_path / folder / WEIGHTS) for folder in "ab")
    mixed |= {key: others[key] for key in others if K_PROJ in key}
    save_file(mixed, tmp_path / "a" / WEIGHTS)
    expected.get_submodule(K_PROJ).weight = other.get_submodule(K_PROJ).weight
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    added = second.config["config_groups"]["group_0"]
    config["quantization_config"]["config_groups"]["group_1"] = added
    (tmp_path / "a" / "config.json").write_text(json.dumps(config))
    loaded = load(tmp_path / "a", "cpu")
    ids = ids_of(loaded, 1, 3)[None]
    assert torch.equal(loaded.model(ids).logits, expected(ids).logits)
    words = r"layers\.1\.self_attn\.q_proj is int4_g32, .*\.k_proj is int4_channel, .*as one matrix"
    with pytest.raises(ModelError, match=words):
        fused(loaded, WORKLOAD)
