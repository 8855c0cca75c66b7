"""Checkpoints read a rank's part at a time, without a process group."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model import loading, tensor_reader, workload_costs
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.quantized_weights import QuantizedMatrix
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.tensor_reader import TensorReader
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import model_bytes
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.parallel.split import HEAD_WEIGHT
from decodescope.variants.spec import VariantSpec
from tests.helpers import families
from tests.helpers.split_families import CASES, shape_of
from tests.variants.model.broken_checkpoints import DOWN, copy_of_tiny
from tests.variants.model.quantized_checkpoints import LAYOUTS, save_quantized
from tests.variants.parallel.loaded_parts import loaded
from tests.variants.steps.fused.test_mxfp4_checkpoint import stored, write

# Families whose checkpoints differ: merged matrices, biases, a tied head, and experts as each
# stores them.
SAVED = (
    "llama-biased",
    "llama-tied",
    "phi3",
    "gemma4-inputs",
    "qwen2-moe",
    "glm4-moe",
    "mixtral",
    "gpt-oss",
    "olmo2",
)


def held_by(model: Any) -> dict[str, torch.Tensor]:
    """Every tensor of a model by name, quantised elements as bytes."""
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, module in model.named_modules():
        if isinstance(module, QuantizedMatrix):
            held[f"{name}.data"] = module.data.view(torch.int8)
            held |= {} if module.scale is None else {f"{name}.scale": module.scale}
    return held


def assert_parts_of(folder: Path | str, ep: bool = False) -> tuple[Finding, ...]:
    """Two ranks load what they hold of the whole model; returns what they find."""
    for rank in range(2):
        whole = loaded(folder).model
        shard_model(whole, Ranks(rank, 2), ep)
        part = loaded(folder, Ranks(rank, 2), ep)
        got, expected = held_by(part.model), held_by(whole)
        assert got.keys() == expected.keys()
        assert [name for name in got if not torch.equal(got[name], expected[name])] == []
        assert part.weight_bytes == model_bytes(whole)
        assert part.ranks == Ranks(rank, 2)
    return part.findings


@pytest.mark.parametrize(("name", "ep"), [case for case in CASES if case[0] in SAVED])
def test_ranks_read_their_parts_of_a_checkpoint(name: str, ep: bool, tmp_path: Path) -> None:
    families.build(name, **shape_of(name)).save_pretrained(tmp_path)
    assert assert_parts_of(tmp_path, ep) == ()


# Families of which transformers renames tensors when it loads them, in their own words.
_MIXTURE: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
}
RENAMED = {
    "aria_text": "model.layers.1.mlp.experts.fc1.weight",
    "exaone_moe": "model.layers.1.mlp.e_score_correction_bias",
    "flint": "model.layers.1.self_attn.softmax_offset",
    "hy_v3": "model.layers.1.mlp.router.gate.weight",
    "kolibri1": "model.layers.1.post_attn_norm.weight",
    "minimax_m2": "model.layers.1.block_sparse_moe.e_score_correction_bias",
    "phimoe": "model.layers.1.block_sparse_moe.gate.weight",
}


def save_random(folder: Path, model_type: str, **fields: Any) -> Any:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this release of transformers knows no {model_type}")
    shape = families.CONFIGS["llama2"] | {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
    }
    shape |= {"num_key_value_heads": 2, "pad_token_id": 0} | fields
    config = AutoConfig.for_model(**(shape | {"model_type": model_type}))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for number, weight in enumerate(model.parameters()):
        torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(number))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("model_type", RENAMED)
def test_ranks_read_tensors_that_transformers_renames(model_type: str, tmp_path: Path) -> None:
    save_random(tmp_path, model_type, **_MIXTURE)
    assert RENAMED[model_type] in load_file(tmp_path / "model.safetensors")
    assert assert_parts_of(tmp_path) == ()


def test_ranks_read_a_decoder_that_was_saved_without_its_head(tmp_path: Path) -> None:
    save_random(tmp_path, "llama", tie_word_embeddings=True).model.save_pretrained(tmp_path)
    assert "layers.1.mlp.down_proj.weight" in load_file(tmp_path / "model.safetensors")
    assert assert_parts_of(tmp_path) == ()


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    save_random(tmp_path, "phimoe", **_MIXTURE)
    path = tmp_path / "model.safetensors"
    name = "model.layers.1.block_sparse_moe.gate.weight"
    tensors = load_file(path)
    save_file(tensors | {name.replace("block_sparse_moe", "mlp"): tensors[name] + 1}, path)
    words = rf"holds .*\.mlp\.gate\.weight, as model.safetensors holds {name}, of the same name in"
    with pytest.raises(ModelError, match=words):
        loaded(tmp_path, Ranks(1, 2))


def test_experts_one_by_one_have_other_names(tmp_path: Path) -> None:
    """What the checkpoints above are, and that Mixtral's router is found."""
    families.build("mixtral", **shape_of("mixtral")).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert "model.layers.1.block_sparse_moe.experts.3.w2.weight" in names
    assert "model.layers.1.block_sparse_moe.gate.weight" in names


@pytest.mark.parametrize("equal", [True, False])
def test_a_stored_head_counts_and_not_config_json(
    equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in transformers: ranks read the head that is stored, unless it is the table's copy."""
    families.build("llama-tied", **shape_of("llama-tied")).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors[HEAD_WEIGHT] = tensors["model.embed_tokens.weight"].clone()
    tensors[HEAD_WEIGHT][-1, -1] += not equal
    save_file(tensors, file, {"format": "pt"})
    monkeypatch.setattr(tensor_reader, "_COMPARED", 100)
    assert assert_parts_of(tmp_path) == ()
    whole, part = loaded(tmp_path), loaded(tmp_path, Ranks(1, 2))
    assert torch.equal(whole.model.lm_head.weight, tensors[HEAD_WEIGHT])
    rows = part.model.lm_head.weight
    assert torch.equal(rows, tensors[HEAD_WEIGHT][-len(rows) :])
    assert split_of(part.model).tied is equal


@pytest.mark.parametrize("family", ["qwen3", "llama-tied"])
@pytest.mark.parametrize(
    "layout",
    [
        "compressed-tensors FP8, scales of rows in bf16",
        "AutoFP8",
        "E5M2 without scales",
        "compressed-tensors, the head too",
    ],
)
def test_ranks_read_matrices_of_8_bits(family: str, layout: str, tmp_path: Path) -> None:
    save_quantized(tmp_path, family, LAYOUTS[layout])
    (finding,) = assert_parts_of(tmp_path)
    assert "8-bit matrices of the checkpoint" in finding.message


@pytest.mark.parametrize("ep", [False, True])
def test_ranks_read_packed_experts(ep: bool, tmp_path: Path) -> None:
    """The experts of the checkpoint have two blocks a row, and there are five."""
    folder = write(tmp_path, stored()[0])
    if not ep:
        (finding,) = assert_parts_of(folder)
        assert "(MXFP4)" in finding.message
        return
    with pytest.raises(ModelError, match="num_local_experts 5 cannot be split over 2 ranks"):
        loaded(folder, Ranks(0, 2), ep)


@pytest.mark.parametrize("name", ["qwen2-moe", "olmo3"])
def test_only_the_part_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the bytes that leave the files."""
    families.build(name, **shape_of(name)).save_pretrained(tmp_path)
    read_bytes = []

    class Counted:
        def __init__(self, part: Any) -> None:
            self._part = part

        def __getitem__(self, index: Any) -> torch.Tensor:
            read_bytes.append(self._part[index].nbytes)
            return self._part[index]

        def get_shape(self) -> list[int]:
            return self._part.get_shape()

    class CountedFile:
        def __init__(self, file: Any) -> None:
            self._file = file

        def get_tensor(self, key: str) -> torch.Tensor:
            read_bytes.append(self._file.get_tensor(key).nbytes)
            return self._file.get_tensor(key)

        def get_slice(self, key: str) -> Counted:
            return Counted(self._file.get_slice(key))

    opened = TensorReader._file
    monkeypatch.setattr(TensorReader, "_file", lambda self, key: CountedFile(opened(self, key)))
    for ep in (False, True)[: 1 + (name in families.MIXTURES)]:
        read_bytes.clear()
        part = loaded(tmp_path, Ranks(1, 2), ep)
        assert sum(read_bytes) == part.weight_bytes
    whole = loaded(tmp_path)
    named = whole.model.named_parameters()
    norms = [each for key, each in named if each.dim() == 1 and "q_norm" not in key]
    replicated = whole.model.model.embed_tokens.weight.nbytes + sum(each.nbytes for each in norms)
    routers = sum(
        weight.nbytes for name, weight in whole.model.named_parameters() if "gate.weight" in name
    )
    assert part.weight_bytes <= whole.weight_bytes / 2 + replicated + routers


def test_a_checkpoint_that_lacks_tensors_is_refused(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "tiny")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {key: each for key, each in tensors.items() if key != DOWN}, folder / "model.safetensors"
    )
    with pytest.raises(ModelError, match=f"lacks 1 tensor of the model: {DOWN}"):
        loaded(folder, Ranks(1, 2))
    save_file(tensors | {"more": torch.ones(2)}, folder / "model.safetensors")
    (finding,) = loaded(folder, Ranks(1, 2)).findings
    assert "more" in finding.message


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "tiny")
    tensors = load_file(folder / "model.safetensors")
    tensors[DOWN][0, -1] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    loaded(folder, Ranks(0, 2))
    with pytest.raises(ModelError, match=f"NaN or infinite values.*{DOWN}"):
        loaded(folder, Ranks(1, 2))


def test_what_cannot_be_split_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*args: object) -> None:
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(TensorReader, "read", read)
    with pytest.raises(ModelError, match=r"^tiny: num_attention_heads 4 cannot be split over 3"):
        loaded("tiny", Ranks(0, 3))
    folder = copy_of_tiny(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="ranks cannot load a checkpoint quantized by fp8 with"):
        loaded(folder, Ranks(0, 2))
    # 640 columns of down in two groups of 320, which no group of 128 columns divides.
    workload = DecodeWorkload(1, 4, 4, "fp32")
    spec = VariantSpec.parse("fused+int4")
    with pytest.raises(ModelError, match="320 columns a rank are not whole groups of int4"):
        load_model(resolve_model("tiny"), "cpu", "fp32", False, workload, spec, None, Ranks(0, 2))


def test_memory_is_compared_with_the_need_of_all_ranks_that_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Llama 3.2 1B has 2.5 GB of weights; a fifth of it is the table that every rank has."""
    monkeypatch.setattr(workload_costs, "free_host_bytes", lambda: 3_300_000_000)
    monkeypatch.setattr(workload_costs, "free_gpu_bytes", lambda: 1_300_000_000)
    monkeypatch.setattr(workload_costs, "from_rank_0", lambda value, ranks: value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")

    def without_memory(config: Any, device: str, *how: Any) -> Any:
        return build_random(config, "meta", *how)

    monkeypatch.setattr(loading, "build_random", without_memory)
    source, workload = resolve_model("llama-3.2-1b@random"), DecodeWorkload(1, 4, 4, "bf16")
    # Of four ranks, two are on another host.
    for ranks in (Ranks(1, 2), Ranks(1, 4)):
        load_model(source, "cpu", "bf16", workload=workload, ranks=ranks)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    complaint = (
        r"needs at least 4\.0\d GB by 4 ranks, each of them \(weights 1\.01 GB, .*"
        r"3\.30 GB are free; lower --tp, or lower --batch, "
    )
    with pytest.raises(MissingRequirement, match=complaint):
        load_model(source, "cpu", "bf16", workload=workload, ranks=Ranks(1, 4))
    load_model(source, "cuda", "bf16", workload=workload, ranks=Ranks(1, 4))
    with pytest.raises(MissingRequirement, match=r"not enough GPU memory .* \(weights 1\.50 GB"):
        load_model(source, "cuda", "bf16", workload=workload, ranks=Ranks(1, 2))
