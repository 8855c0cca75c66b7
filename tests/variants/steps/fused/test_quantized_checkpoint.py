"""Fused steps on checkpoints with 8-bit weights, against transformers on the dequantized model."""

from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.kernels.shape_model import shape_model
from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.registry import build_variant
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.eager_step import EagerStep
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from tests.helpers.fused_steps import assert_logits_agree, fused, ids_of, prompt_of
from tests.variants.model.quantized_checkpoints import (
    INT8,
    LAYOUTS,
    WEIGHTS,
    Layout,
    compressed_tensors,
    save_quantized,
)

ROWS_FP8 = Layout(compressed_tensors({}))
WORKLOAD = DecodeWorkload(1, 5, 3, "fp32")
K_PROJ = "model.layers.1.self_attn.k_proj"


def load(folder: Path, device: str) -> LoadedModel:
    return load_model(resolve_model(str(folder)), device, "fp32")


def assert_agrees(
    loaded: LoadedModel,
    expected: torch.nn.Module,
    variant: str = "fused",
    workload: DecodeWorkload = WORKLOAD,
) -> None:
    device = str(loaded.model.device.type)
    reference = LoadedModel(expected.to(device), None, "random", "reference", None)
    step = build_variant(variant, loaded, workload, device)
    steps = step, EagerStep(reference, workload)
    prompt = prompt_of(loaded, workload)
    first, other = (step.prefill(prompt) for step in steps)
    assert torch.equal(first, other)
    ids = ids_of(loaded, workload.batch, 3)
    assert_logits_agree(step.forced_step(ids), steps[1].forced_step(ids))
    assert step.weight_bytes_read == weight_bytes_read(loaded.model, workload.batch)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_layout_is_decoded_as_it_is(layout: Layout, device: str, tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, "qwen2", layout)
    assert_agrees(load(tmp_path, device), expected)


@pytest.mark.parametrize("name", ["AutoFP8", "compressed-tensors INT8"])
def test_a_batch(name: str, device: str, tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, "qwen2", LAYOUTS[name])
    workload = DecodeWorkload(3, 5, 3, "fp32")
    assert_agrees(load(tmp_path, device), expected, workload=workload)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # from torch.compile
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("variant", ["eager", "compiled", "fused+graph"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_variant_on_the_gpu(layout: Layout, variant: str, batch: int, tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, "qwen2", layout)
    workload = DecodeWorkload(batch, 5, 3, "fp32")
    assert_agrees(load(tmp_path, "cuda"), expected, variant, workload)


@pytest.mark.parametrize("family", ["llama-biased", "llama-odd-hidden", "qwen3-biased", "mistral"])
def test_families(family: str, device: str, tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, family, ROWS_FP8)
    assert_agrees(load(tmp_path, device), expected)


@pytest.mark.parametrize(
    ("layout", "spec"),
    [
        (ROWS_FP8, "fused+fp8_e4m3+head16"),
        (Layout(compressed_tensors({"type": "int"}), INT8), "fused+int8+head16"),
    ],
    ids=["fp8", "int8"],
)
def test_its_own_format_changes_nothing(
    layout: Layout, spec: str, device: str, tmp_path: Path
) -> None:
    expected = save_quantized(tmp_path, "llama-tied", layout)
    loaded = load(tmp_path, device)
    before = {
        name: (module.data.view(torch.uint8).clone(), module.scale.clone())
        for name, module in loaded.model.named_modules()
        if isinstance(module, QuantizedLinear)
    }
    assert_agrees(loaded, expected, spec)
    for name, (codes, scale) in before.items():
        module = loaded.model.get_submodule(name)
        assert torch.equal(module.data.view(torch.uint8), codes)
        assert torch.equal(module.scale, scale)


def test_scales_of_rows_and_of_a_matrix_are_merged(device: str, tmp_path: Path) -> None:
    rows = save_quantized(tmp_path / "rows", "llama2", ROWS_FP8)
    whole = save_quantized(tmp_path / "whole", "llama2", LAYOUTS["AutoFP8"])
    tensors = load_file(tmp_path / "rows" / WEIGHTS)
    others = load_file(tmp_path / "whole" / WEIGHTS)
    for end in ("weight", "weight_scale"):
        tensors[f"{K_PROJ}.{end}"] = others[f"{K_PROJ}.{end}"]
    save_file(tensors, tmp_path / "rows" / WEIGHTS, {"format": "pt"})
    rows.get_submodule(K_PROJ).weight = whole.get_submodule(K_PROJ).weight
    assert_agrees(load(tmp_path / "rows", device), rows)


def test_matrices_that_are_partly_quantized_run_eagerly_only(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = save_quantized(tmp_path, "llama2", ROWS_FP8)
    tensors = load_file(tmp_path / WEIGHTS)
    tensors[f"{K_PROJ}.weight"] = expected.get_submodule(K_PROJ).weight
    del tensors[f"{K_PROJ}.weight_scale"]
    save_file(tensors, tmp_path / WEIGHTS, {"format": "pt"})
    loaded = load(tmp_path, device)
    logits = loaded.model(ids_of(loaded, 1, 3)[None]).logits
    torch.testing.assert_close(logits, expected.to(device)(ids_of(loaded, 1, 3)[None]).logits)
    words = r"k_proj is the run dtype, .*v_proj is fp8_e4m3"
    with pytest.raises(ModelError, match=words):
        fused(loaded, WORKLOAD)
    model = str(tmp_path)
    asked = WorkerConfig(
        variant="fused", model=model, batch=1, context=5, tokens=3, dtype="fp32", device=device
    )
    # The variant makes K_PROJ FP8 too.
    prepare(msgspec.structs.replace(asked, variant="fused+fp8_e4m3"), lambda stage: None)
    monkeypatch.delattr("decodescope.variants.model.loading._load_checkpoint")
    with pytest.raises(ModelError, match=words):
        prepare(asked, lambda stage: None)


@pytest.mark.parametrize("layer", [0, 1])
def test_tiles_are_for_the_widest_elements(layer: int, device: str, tmp_path: Path) -> None:
    skipped = [f"model.layers.{layer}.mlp.down_proj"]
    config = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": skipped}
    expected = save_quantized(tmp_path, "llama2", Layout(config))
    loaded = load(tmp_path, device)
    assert step_shapes(fused_model(loaded.model), 1, 64).weight_bytes == 4
    assert_agrees(loaded, expected)


@pytest.mark.parametrize("name", ["fbgemm", "compressed-tensors INT8"])
def test_benches_measure_the_formats_of_the_files(name: str, tmp_path: Path) -> None:
    save_quantized(tmp_path, "qwen2", LAYOUTS[name])
    parts = shape_model(
        resolve_model(str(tmp_path)), 1, torch.bfloat16, "cpu", VariantSpec("fused")
    )
    loaded = fused_model(load(tmp_path, "cpu").model)
    for mine, theirs in zip(parts.layers, loaded.layers, strict=True):
        for one, other in zip(mine.matrices, theirs.matrices, strict=True):
            assert one.data.is_meta
            assert one.data.shape == other.data.shape
            assert (one.scale is None) == (other.scale is None)
            expected = other.data.dtype if other.scale is not None else torch.bfloat16
            assert one.data.dtype == expected
    assert parts.head.data.dtype == torch.bfloat16


def test_another_format_is_refused_where_config_json_names_none(
    device: str, tmp_path: Path
) -> None:
    save_quantized(tmp_path, "llama2", LAYOUTS["E5M2 that config.json does not mention"])
    with pytest.raises(ModelError, match=r"stored in torch\.float8_e5m2.*cannot become int8"):
        fused(load(tmp_path, device), WORKLOAD, "fused+int8")
