"""GGUF files: Q4_0 as it is, other types dequantised, as transformers reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.variants.model import gguf_file, loading
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from tests.variants.model.gguf_checkpoints import (
    FIELDS,
    HEADS,
    HIDDEN,
    MIXES,
    VOCABULARY,
    by_transformers,
    gguf,
    save_gguf,
)

KEPT = (
    "repacked, codes and scales unchanged; variants other than fused dequantise them for every "
    "product, and are slow"
)
DEQUANTISED = "of the checkpoint's matrices are dequantised to the run's dtype"
FOUND = {
    "Q4_0": (
        f"14 of the checkpoint's matrices (GGUF Q4_0) are {KEPT}; 1 {DEQUANTISED} (GGUF Q6_K: no "
        "kernel reads it)"
    ),
    "Q8_0": f"14 {DEQUANTISED} (GGUF Q8_0: no kernel reads it)",
    "Q4_K_M": f"15 {DEQUANTISED} (GGUF Q4_K: no kernel reads it; GGUF Q6_K: no kernel reads it)",
}


def load(path: Path) -> LoadedModel:
    return load_model(resolve_model(str(path)), "cpu", "fp32")


@pytest.mark.parametrize("mix", MIXES)
def test_the_logits_are_those_of_transformers(
    mix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_file, "_BLOCK", 4096)
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES[mix])
    loaded, expected = load(path), by_transformers(path)
    for name, module in expected.named_modules():
        if isinstance(module, torch.nn.Linear):
            mine = loaded.model.get_submodule(name)
            if isinstance(mine, QuantizedLinear):
                weight = mine.convert(mine.data, mine.scale, torch.float32, mine.packing)
            else:
                weight = mine.weight
            assert torch.equal(weight, module.weight), name
    ids = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    logits = loaded.model(ids).logits
    assert logits.isfinite().all()
    assert torch.equal(logits, expected(ids).logits)
    (finding,) = loaded.findings
    assert finding.message == FOUND[mix]


def test_the_head_may_be_the_embedding_table(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES["Q4_0"], head=False)
    loaded = load(path)
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    ids = torch.arange(9)[None]
    assert torch.equal(loaded.model(ids).logits, by_transformers(path)(ids).logits)


def test_frequencies_are_divided_by_the_factors_of_the_file(tmp_path: Path) -> None:
    """Which transformers' reader leaves out."""
    path, half = tmp_path / "model.gguf", HIDDEN // HEADS // 2
    factors = np.linspace(1, 8, half)
    save_gguf(path, MIXES["Q4_0"], rope_factors=factors)
    loaded = load(path)
    expected = 500.0 ** (-np.arange(half) / half) / factors
    assert np.allclose(loaded.model.model.rotary_emb.inv_freq, expected, rtol=1e-6, atol=0)
    assert [finding.code for finding in loaded.findings] == ["quantized_checkpoint"]
    theirs = by_transformers(path)
    theirs.model.rotary_emb.inv_freq.div_(torch.from_numpy(factors).float())
    ids = torch.arange(40)[None]
    assert torch.equal(loaded.model(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("rotated", [{}, {"rope_dimension_count": 96}])
def test_heads_have_the_size_that_the_file_says(
    architecture: str, rotated: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    fields = {"key_length": 96, "value_length": 96} | rotated
    save_gguf(path, MIXES["Q4_0"], architecture, head_dim=96, fields=fields)
    loaded = load(path)
    ids = torch.arange(9)[None]
    assert torch.equal(loaded.model(ids).logits, by_transformers(path, head_dim=96)(ids).logits)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value_length": 32}, "attention.value_length 32 in its metadata; only heads of one"),
        ({"rope_dimension_count": 48}, "rope.dimension_count 48 in its metadata; only heads"),
    ],
)
def test_heads_of_two_sizes_are_refused(fields: dict[str, int], words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES["Q4_0"], head_dim=96, fields={"key_length": 96} | fields)
    with pytest.raises(ModelError, match=f"attention.key_length is 96 and {words}"):
        load(path)


def test_a_file_is_opened_as_seldom_as_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing a vocabulary of 128,000 takes seconds: once for config.json, once for the tensors."""
    save_gguf(tmp_path / "model.gguf", MIXES["Q8_0"])
    opened = 0
    init = gguf.GGUFReader.__init__

    def counted(reader: gguf.GGUFReader, *given: Any) -> None:
        nonlocal opened
        opened += 1
        init(reader, *given)

    monkeypatch.setattr(gguf.GGUFReader, "__init__", counted)
    monkeypatch.setattr(loading, "_load_tokenizer", lambda *_: None)
    load(tmp_path / "model.gguf")
    assert opened == 2


def test_a_folder_of_gguf_files_asks_for_one(tmp_path: Path) -> None:
    save_gguf(tmp_path / "model.gguf", {})
    with pytest.raises(ModelError, match=r"a folder of GGUF files; name one, as .*model\.gguf"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("length", [256, 1024])
def test_matrices_of_other_sizes_than_the_metadata_says_are_refused(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIELDS, "feed_forward_length", length)
    save_gguf(tmp_path / "model.gguf", MIXES["Q4_0"])
    words = (
        rf"layers\.0\.mlp\.gate_proj\.weight is \[512, 256\] .* and \[{length}, 256\] by its meta"
    )
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "model.gguf")


def test_an_architecture_whose_tensors_are_not_one_to_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, {}, "qwen3moe")
    with pytest.raises(ModelError, match="the architecture qwen3moe are not read"):
        load(path)


@pytest.mark.parametrize("kept", [0, 3, 40, 700, 60_000])
def test_a_file_that_is_cut_is_refused_in_one_line(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES["Q4_0"])
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelError, match="not a GGUF file that transformers reads") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES["Q4_0"])
    (tensor,) = (
        each for each in gguf.GGUFReader(path).tensors if each.name == "blk.1.ffn_down.weight"
    )
    with path.open("r+b") as file:
        file.seek(tensor.data_offset + 5 * int(tensor.data.shape[1]))
        file.write(np.float16("nan").tobytes())
    with pytest.raises(ModelError, match=r"row 5 of model.layers.1.mlp.down_proj.weight has scale"):
        load(path)


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_gguf(tmp_path / "model.gguf", {})
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    with pytest.raises(MissingRequirement, match="pip install gguf"):
        load(tmp_path / "model.gguf")
