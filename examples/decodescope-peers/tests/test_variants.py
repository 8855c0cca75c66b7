"""decodescope finds the variants by their entry points, and says what each needs."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import decodescope_peers
from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import available_variants, find_variant, require_variant

NAMES = ["gpt-fast", "gpt-fast-int4", "liger", "torchao-fp8", "torchao-int4", "torchao-int8"]


def needs_on(device: str) -> dict[str, str | None]:
    return {info.name: info.unavailable for info in available_variants(device)}


def test_peers_follow_our_own_with_what_they_need(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decodescope_peers, "find_spec", lambda name: None)
    needs = needs_on("cuda")
    assert list(needs)[-6:] == NAMES
    assert needs["torchao-fp8"] == needs["torchao-int4"] == "needs torchao: pip install torchao"
    assert needs["liger"] == "needs liger-kernel: pip install liger-kernel"
    assert needs["gpt-fast"] is not None
    with pytest.raises(MissingRequirement, match="torchao-int8: needs torchao: pip install"):
        require_variant("torchao-int8", "cuda")
    on_cpu = needs_on("cpu")
    assert on_cpu["liger"] == "needs a CUDA device; needs liger-kernel: pip install liger-kernel"


def test_gpt_fast_in_int4_needs_what_its_quantize_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = decodescope_peers.GPT_FAST_INT4.missing
    assert missing is not None
    (tmp_path / "generate.py").write_text("")
    model = SimpleNamespace(origin=str(tmp_path / "model.py"))
    specs = {"model": model, "tiktoken": model, "sentencepiece": model}
    monkeypatch.setattr(decodescope_peers, "find_spec", specs.get)
    assert missing() is None
    del specs["sentencepiece"]
    assert missing() == "needs sentencepiece: pip install sentencepiece"
    del specs["tiktoken"]
    assert missing() == "needs sentencepiece and tiktoken: pip install sentencepiece tiktoken"
    del specs["model"]
    assert (missing() or "").startswith("needs a checkout of")


@pytest.mark.parametrize("name", ["gpt-fast-int4", "torchao-int4"])
def test_int4_multiplies_bf16_only(installed: None, name: str) -> None:
    check = find_variant(name).check
    assert check is not None
    check("a model", {"model_type": "llama"}, DecodeWorkload(1, 4, 5), "cuda")
    with pytest.raises(
        ModelError, match=f"variant {name}: its INT4 weights multiply bf16, not fp16"
    ):
        check("a model", {"model_type": "llama"}, DecodeWorkload(1, 4, 5, "fp16"), "cuda")


@pytest.mark.parametrize("name", ["gpt-fast", "gpt-fast-int4", "liger"])
def test_a_peer_of_llamas_refuses_others_before_weights(installed: None, name: str) -> None:
    check = find_variant(name).check
    assert check is not None
    check("a model", {"model_type": "llama"}, DecodeWorkload(1, 4, 5), "cuda")
    for config in ({"model_type": "qwen2"}, {}):
        with pytest.raises(ModelError, match=f"variant {name}: a model is no Llama but"):
            check("a model", config, DecodeWorkload(1, 4, 5), "cuda")
