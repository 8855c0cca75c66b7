"""Matrices of 4 bits and GGUF files, read a rank's part at a time, without a process group."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.quantized_weights import QuantizedMatrix, scaled
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.ranks import Ranks
from tests.variants.model.gguf_checkpoints import MIXES, save_gguf
from tests.variants.model.grouped_checkpoints import LAYOUTS, Packed, save_packed
from tests.variants.parallel.loaded_parts import loaded

# Of 128 columns of O and 128, 192 or 136 of down, each of two ranks has half.
_WIDTHS = {
    "compressed-tensors": 128,
    "compressed-tensors in bf16, zero points": 128,
    "compressed-tensors, channels with zero points": 136,
    "compressed-tensors, actorder group": 128,
    "GPTQ": 192,
    "GPTQ, desc_act": 128,
    # A group more than fills the last 32 columns.
    "NVFP4 of compressed-tensors": 160,
    "NVFP4 of ModelOpt": 128,
    "MXFP4 of compressed-tensors": 128,
    "AWQ": 128,
}


def layout_of(name: str, width: int) -> Packed:
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}
    return replace(LAYOUTS[name], sizes={**sizes, "hidden_size": 96, "intermediate_size": width})


def dense(model: Any) -> dict[str, torch.Tensor]:
    """The weights of all matrices, in fp32."""
    return {
        f"{name}.weight": scaled(each.data, each.scale, torch.float32, each.packing)
        if isinstance(each, QuantizedMatrix)
        else each.weight.detach()
        for name, each in model.named_modules()
        if isinstance(each, QuantizedMatrix | torch.nn.Linear)
    }


def assert_parts(folder: Path, whole: dict[str, torch.Tensor]) -> LoadedModel:
    """Two ranks load their parts of the `whole` weights; returns the second."""
    for rank in range(2):
        part = loaded(folder, Ranks(rank, 2))
        split = split_of(part.model)
        for key, weight in dense(part.model).items():
            cut = split.part(key)
            assert torch.equal(weight, whole[key] if cut is None else cut(whole[key])), key
    return part


@pytest.mark.parametrize(
    ("layout", "family"),
    [*((name, "llama-biased") for name in _WIDTHS), ("AWQ", "phi3")],
)
def test_ranks_cut_matrices_of_4_bits_between_groups(
    layout: str, family: str, tmp_path: Path
) -> None:
    packed = layout_of(layout, _WIDTHS[layout])
    save_packed(tmp_path, packed, family)
    whole = dense(loaded(tmp_path).model)
    part = assert_parts(tmp_path, whole)
    down = part.model.model.layers[0].mlp.down_proj
    assert isinstance(down, QuantizedMatrix) == packed.stays
    if packed.stays:
        assert down.columns == _WIDTHS[layout] // 2
        assert down.data.nbytes < whole["model.layers.0.mlp.down_proj.weight"].nbytes / 4


def test_all_ranks_dequantise_what_one_must(tmp_path: Path) -> None:
    """A scale beyond those of the kernels, in columns that the first rank has."""
    save_packed(tmp_path, layout_of("MXFP4 of compressed-tensors", 128))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight_scale"][3, 0] = 127 + 5
    save_file(tensors, tmp_path / "model.safetensors")
    whole = dense(loaded(tmp_path).model)
    part = assert_parts(tmp_path, whole).model.model.layers[0]
    assert type(part.mlp.down_proj) is torch.nn.Linear
    assert part.mlp.down_proj.in_features == 64
    assert isinstance(part.mlp.up_proj, QuantizedMatrix)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("head", [True, False])
def test_ranks_read_gguf_files(mix: str, head: bool, tmp_path: Path) -> None:
    save_gguf(tmp_path / "model.gguf", MIXES[mix], head=head)
    whole = loaded(tmp_path / "model.gguf").model
    part = assert_parts(tmp_path / "model.gguf", dense(whole))
    table = part.model.model.embed_tokens.weight
    assert torch.equal(table, whole.model.embed_tokens.weight)
    assert (part.model.lm_head.weight.data_ptr() == table[51].data_ptr()) != head


@pytest.mark.parametrize(
    ("layout", "width", "complaint"),
    [
        ("compressed-tensors", 160, r"mlp.down_proj of 160 columns in int4_g32 gives no whole"),
        (
            "GPTQ, the last group is short",
            136,
            "mlp.down_proj of 136 columns in int4_asym in groups of 32",
        ),
        (
            "GPTQ in groups of 96",
            192,
            r"self_attn.o_proj of 128 columns in int4_asym in groups of 96",
        ),
    ],
)
def test_parts_of_groups_are_refused(
    layout: str, width: int, complaint: str, tmp_path: Path
) -> None:
    save_packed(tmp_path, layout_of(layout, width))
    with pytest.raises(ModelError, match=complaint):
        loaded(tmp_path, Ranks(0, 2))
