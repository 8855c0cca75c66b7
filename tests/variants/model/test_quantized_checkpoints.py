"""Checkpoints whose weights have 8 bits already: they are loaded as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from transformers.utils import hub as transformers_hub

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.comparing import accuracy
from decodescope.variants.comparing.accuracy import score_variants
from decodescope.variants.measuring.preparation import prepare, require_weights
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.model import hub, workload_costs
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear, quantized_formats
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.stored_quantization import require_format
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import model_bytes
from decodescope.variants.spec import VariantSpec
from tests.helpers import families
from tests.variants.model.broken_checkpoints import sharded, with_config
from tests.variants.model.quantized_checkpoints import (
    E4M3,
    INT8,
    LAYOUTS,
    WEIGHTS,
    Layout,
    compressed_tensors,
    save_quantized,
)

ROWS_FP8 = Layout(compressed_tensors({}))


def load(folder: Path, dtype: Any = "fp32") -> LoadedModel:
    return load_model(resolve_model(str(folder)), "cpu", dtype)


@pytest.mark.parametrize("family", ["llama-tied", "qwen3-biased", "llama-odd-hidden"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_layout_gives_the_logits_of_the_dequantized_model(
    layout: Layout, family: str, tmp_path: Path
) -> None:
    expected = save_quantized(tmp_path, family, layout)
    loaded = load(tmp_path)
    ids = families.prompt_ids(family, 2, 9)
    logits = loaded.model(ids).logits
    assert logits.isfinite().all()
    assert torch.equal(logits, expected(ids).logits)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_gives_the_logits_of_the_dequantized_model(
    family: str, tmp_path: Path
) -> None:
    expected = save_quantized(tmp_path, family, ROWS_FP8)
    # Past the lengths at which some rotary frequencies change.
    ids = families.prompt_ids(family, 2, families.ORIGINAL_MAX + 4)
    assert torch.equal(load(tmp_path).model(ids).logits, expected(ids).logits)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_the_codes_are_those_of_the_files(layout: Layout, tmp_path: Path) -> None:
    save_quantized(tmp_path, "qwen2", layout)
    stored = load_file(tmp_path / WEIGHTS)
    loaded = load(tmp_path, "bf16")
    found = 0
    for name, module in loaded.model.named_modules():
        if isinstance(module, QuantizedLinear):
            found += 1
            weight = stored[f"{name}.weight"]
            assert module.data.dtype == weight.dtype == layout.dtype
            assert torch.equal(module.data.view(torch.uint8), weight.view(torch.uint8))
            assert module.data.data_ptr() % 16 == 0
            if layout.scale is None:
                assert module.scale is None
            else:
                assert module.scale.shape == (len(weight),)
                assert module.scale.dtype == torch.float32
                assert module.scale.is_contiguous()
    assert found == sum(tensor.dtype == layout.dtype for tensor in stored.values())
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    tied = loaded.model.model.embed_tokens.weight
    assert layout.head or loaded.model.lm_head.weight is tied


def test_a_model_takes_the_memory_of_its_files(tmp_path: Path) -> None:
    save_quantized(tmp_path, "llama2", ROWS_FP8)
    stored = load_file(tmp_path / WEIGHTS).values()
    # What has 8 bits stays so, what has 32 is cast to bf16; scales stay.
    scales = sum(tensor.nbytes for tensor in stored if tensor.shape[1:] == (1,))
    narrow = sum(tensor.nbytes for tensor in stored if tensor.dtype == E4M3)
    others = sum(tensor.nbytes for tensor in stored) - scales - narrow
    assert model_bytes(load(tmp_path, "bf16").model) == narrow + scales + others // 2


@pytest.mark.parametrize("layout", [ROWS_FP8, Layout(None, INT8)], ids=["declared", "not declared"])
def test_scales_may_be_in_another_file_than_their_weights(layout: Layout, tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, "llama2", layout)
    sharded(tmp_path)
    ids = families.prompt_ids("llama2", 1, 5)
    assert torch.equal(load(tmp_path).model(ids).logits, expected(ids).logits)


def test_matrices_of_different_formats_and_granularity_are_one_model(tmp_path: Path) -> None:
    fp8 = save_quantized(tmp_path / "fp8", "llama2", ROWS_FP8)
    int8 = save_quantized(
        tmp_path / "int8",
        "llama2",
        Layout(compressed_tensors({"type": "int"}, {}), INT8, lambda rows: rows[:1], whole=True),
    )
    mixed = load_file(tmp_path / "int8" / WEIGHTS)
    from_fp8 = load_file(tmp_path / "fp8" / WEIGHTS)
    for name in mixed:
        if "down_proj" in name:
            mixed[name] = from_fp8[name]
    for number, layer in enumerate(int8.model.layers):
        layer.mlp.down_proj.weight = fp8.model.layers[number].mlp.down_proj.weight
    save_file(mixed, tmp_path / "int8" / WEIGHTS, {"format": "pt"})
    loaded = load(tmp_path / "int8")
    ids = families.prompt_ids("llama2", 1, 5)
    assert torch.equal(loaded.model(ids).logits, int8(ids).logits)
    assert {stored[0] for stored in quantized_formats(loaded.model).values()} == {E4M3, INT8}
    (finding,) = loaded.findings
    assert finding.message == (
        "14 8-bit matrices of the checkpoint (float8_e4m3fn, int8) are read as they are; "
        "activations, K and V, which it quantizes too, have the run's dtype unless the variant "
        "names a format"
    )


@pytest.mark.parametrize(
    ("layout", "unused"),
    [(LAYOUTS["AutoFP8"], True), (LAYOUTS["E5M2 without scales"], False)],
)
def test_what_a_run_does_not_use_is_a_finding(layout: Layout, unused: bool, tmp_path: Path) -> None:
    save_quantized(tmp_path, "llama2", layout)
    asked = WorkerConfig(
        variant="eager", model=str(tmp_path), batch=1, tokens=3, device="cpu", prompt_ids=(1, 2, 3)
    )
    report = run_variant(asked, None, lambda stage: None)
    findings = {finding.code: finding.message for finding in report.health.findings}
    assert ("activations" in findings["quantized_checkpoint"]) == unused
    assert "unexpected_weights" not in findings


@pytest.mark.parametrize(
    ("config", "format", "stored"),
    [
        (compressed_tensors({}), "int8", "fp8_e4m3"),
        (compressed_tensors({}), "bf16", "fp8_e4m3"),
        (compressed_tensors({}), "fp8_e5m2_cast", "fp8_e4m3"),
        (compressed_tensors({"type": "int"}), "w8a8", "int8"),
        (compressed_tensors({"type": "int"}, {}), "int8", "fp8_e4m3 and int8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8_e5m2", "fp8_e4m3"),
    ],
)
def test_another_format_than_that_of_the_checkpoint_is_refused(
    config: dict[str, Any], format: str, stored: str
) -> None:
    spec = VariantSpec.parse(f"fused+{format}")
    with pytest.raises(InputError, match=f"weights in {format}, but mine is stored in {stored};"):
        require_format("mine", {"quantization_config": config}, spec)


@pytest.mark.parametrize(
    ("config", "formats"),
    [
        (compressed_tensors({}), ("", "+fp8_e4m3", "+w8a8")),
        (compressed_tensors({"type": "int"}), ("", "+int8")),
        (None, ("", "+int8", "+fp8_e5m2", "+bf16")),
    ],
)
def test_the_format_of_the_checkpoint_may_be_named(
    config: dict[str, Any] | None, formats: tuple[str, ...]
) -> None:
    for format in formats:
        spec = VariantSpec.parse(f"fused{format}")
        require_format("mine", json.loads(json.dumps({"quantization_config": config})), spec)


def in_the_hubs_cache(folder: Path, cache: Path) -> str:
    """The checkpoint of `folder` as the hub's client caches it; its id."""
    repository = cache / "models--some--model"
    for name in ("refs", "snapshots"):
        (repository / name).mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    folder.rename(repository / "snapshots" / ("0" * 40))
    return "some/model"


@pytest.mark.parametrize("from_hub", [False, True], ids=["folder", "hub"])
def test_memory_is_that_of_the_8_bit_weights(
    from_hub: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = save_quantized(tmp_path / "model", "llama2", LAYOUTS["AutoFP8"])
    name, ids = str(tmp_path / "model"), families.prompt_ids("llama2", 1, 5)
    if from_hub:
        name = in_the_hubs_cache(tmp_path / "model", tmp_path / "cache")
        monkeypatch.setattr(hub, "_hub_answers", lambda: False)
        for module in (hub.constants, transformers_hub.constants):
            monkeypatch.setattr(module, "HF_HUB_CACHE", str(tmp_path / "cache"))
    workload = DecodeWorkload(1, 2, 2, "fp32")

    def loaded() -> LoadedModel:
        return load_model(resolve_model(name), "cpu", "fp32", workload=workload)

    needed = model_bytes(loaded().model)
    # K and V, logits, activations, lists and one matrix in the run's dtype.
    enough = needed + 80_000
    assert enough < 0.7 * model_bytes(expected)
    monkeypatch.setattr(workload_costs, "free_host_bytes", lambda: enough)
    assert torch.equal(loaded().model(ids).logits, expected(ids).logits)
    monkeypatch.setattr(workload_costs, "free_host_bytes", lambda: needed)
    with pytest.raises(MissingRequirement, match="not enough memory"):
        loaded()


def test_the_reference_of_a_comparison_is_the_checkpoint_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "SEQUENCES", 4)
    save_quantized(tmp_path, "llama2", LAYOUTS["AutoFP8"])
    with_config(max_position_embeddings=512)(tmp_path)
    asked = WorkerConfig(
        variant="eager", model=str(tmp_path), batch=4, tokens=4, device="cpu", dtype="bf16"
    )
    done = score_variants(asked, ["eager"], None, lambda stage: None)
    found = done.accuracies["eager"]
    assert 0 < found.logit_rel_error < 0.03
    assert found.kl < 1e-3
    exact = score_variants(replace(asked, dtype="fp32"), ["eager"], None, lambda stage: None)
    assert exact.accuracies["eager"].logit_rel_error == 0


def test_the_checkpoint_comes_back_after_a_variant_that_quantizes_more(tmp_path: Path) -> None:
    expected = save_quantized(tmp_path, "llama2", LAYOUTS["E5M2 that config.json does not mention"])
    asked = WorkerConfig(
        variant="eager", model=str(tmp_path), batch=1, tokens=4, context=4, device="cpu"
    )
    prepared = prepare(asked, lambda stage: None)
    before = quantized_formats(prepared.loaded.model)
    assert len(before) == 14
    more = require_weights(prepared, "fused+fp8_e5m2", lambda stage: None)
    assert quantized_formats(more.loaded.model).keys() - before.keys() == {"lm_head"}
    back = require_weights(more, "eager", lambda stage: None)
    assert quantized_formats(back.loaded.model) == before
    ids = families.prompt_ids("llama2", 1, 5)
    assert torch.equal(back.loaded.model(ids).logits, expected(ids).logits)
