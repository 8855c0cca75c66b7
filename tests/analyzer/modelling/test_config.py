"""config.json: found by path, folder and name; what it says wrongly, or not at all, is said."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import model_shape, read_model_config
from decodescope.analyzer.modelling.shape import ModelShape

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
}
MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
}


def shape(**fields: Any) -> ModelShape:
    return model_shape({**LLAMA, **fields}, "m", "config.json")


def refused(**fields: Any) -> str:
    with pytest.raises(InputError) as error:
        shape(**fields)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_and_its_folder_are_the_same_model(repository: Path) -> None:
    folder = repository / "variants" / "tiny"
    by_folder = read_model_config(str(folder))
    by_file = read_model_config(str(folder / "config.json"))
    assert by_folder.layers == by_file.layers == ("full",) * 4
    assert (by_file.hidden, by_file.heads, by_file.kv_heads, by_file.head_dim) == (256, 4, 2, 64)
    assert by_file.tied
    assert by_file.source.endswith("config.json")


@pytest.mark.parametrize(
    "name",
    ["openai/gpt-oss-20b", "GPT-OSS-20B", "unsloth/gpt-oss-20b", " gpt_oss_20b "],
)
def test_names_match_whatever_their_case_and_organisation(name: str) -> None:
    assert read_model_config(name).name == "openai/gpt-oss-20b"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("llama-3.2-1b@random", "meta-llama/Llama-3.2-1B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3"),
        ("google/gemma-3-27b-it", "google/gemma-3-27b-it"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-v0.3"),
    ],
)
def test_other_weights_of_a_shape_have_its_name(name: str, full: str) -> None:
    assert read_model_config(name).name == full


def test_an_unknown_name_has_its_nearest_names() -> None:
    with pytest.raises(InputError, match=r"Qwen/Qwen3-8B.*config\.json"):
        read_model_config("qwen3-8x")
    with pytest.raises(InputError, match=r"name the model's config\.json"):
        read_model_config("zzzzzz")
    with pytest.raises(InputError) as error:
        read_model_config("\x1b]0;title\x07" + "x" * 500)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "name a model's config.json"),
        (b"{}", "has no num_hidden_layers"),
    ],
)
def test_a_file_that_is_no_config_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_model_config(str(path))
    assert str(path) in str(error.value)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(InputError, match="No such file"):
            read_model_config(str(path))
    with pytest.raises(InputError):
        read_model_config("a\0b")
    with pytest.raises(InputError):
        read_model_config("a\0b.json")


@pytest.mark.parametrize("field", sorted({*LLAMA} - {"model_type", "num_key_value_heads"}))
def test_a_missing_field_is_named(field: str) -> None:
    assert refused(**{field: None}).startswith(f"config.json: has no {field}")


@pytest.mark.parametrize("value", [0, -1, 1.5, "32", True, [32], 2**31, 10**400])
def test_a_size_that_cannot_be_is_named(value: Any) -> None:
    assert "hidden_size is " in refused(hidden_size=value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_key_value_heads": 3}, "num_attention_heads (4) is no multiple"),
        ({"hidden_size": 255}, "hidden_size (255) is no multiple of num_attention_heads (4)"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries"),
        ({"layer_types": ["sliding_attention"] * 4}, "no sliding_window"),
        ({"layer_types": ["mamba"] * 4}, "layer_types has 'mamba'"),
        ({"layer_types": [["full_attention"]] * 4}, "layer_types has ['full_attention']"),
        ({"layer_types": "full"}, "layer_types is 'full'"),
        ({"torch_dtype": "int3"}, "torch_dtype is 'int3'"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8'"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers is 100000"),
        ({**MOE, "num_experts_per_tok": 9}, "num_experts_per_tok (9) exceeds num_experts (8)"),
        ({**MOE, "num_experts_per_tok": None}, "has no num_experts_per_tok"),
        ({**MOE, "mlp_only_layers": [4]}, "mlp_only_layers has 4"),
        ({**MOE, "first_k_dense_replace": 5}, "first_k_dense_replace is 5"),
        ({**MOE, "moe_layer_freq": [1, 0]}, "moe_layer_freq has 2 entries"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({"index_topk": 2048}, "index_topk: the bytes of such layers are not known"),
        ({"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern: the bytes"),
        ({"kv_lora_rank": 16}, "has no qk_rope_head_dim"),
    ],
)
def test_a_contradiction_inside_a_file_is_named(fields: dict[str, Any], words: str) -> None:
    assert words in refused(**fields)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *MOE,
                "layer_types",
                "head_dim",
                "sliding_window",
                "kv_lora_rank",
                "quantization_config",
                "moe_layer_freq",
                "dtype",
                "text_config",
                "mlp_only_layers",
                "model_type",
            ]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(-2, 5) | st.text(max_size=3), max_size=5)
        | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        max_size=4,
    )
)
def test_any_other_value_of_a_field_is_read_or_refused(fields: dict[str, Any]) -> None:
    with suppress(InputError):
        found = model_shape({**MOE, **fields}, "m", "config.json")
        assert len(found.layers) == len(found.is_moe)


def test_the_decoder_of_a_multimodal_file_is_its_text_config(tmp_path: Path) -> None:
    """As that of gemma-3-4b-it, which leaves out what its class has by default."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = read_model_config(str(path))
    assert (found.hidden, found.heads, found.kv_heads, found.head_dim) == (2560, 8, 4, 256)
    assert (found.vocabulary, found.tied, found.norms_per_layer) == (262208, True, 4)
    bundled = read_model_config("gemma-3-4b-it")
    assert found.layers == bundled.layers
    assert [index for index, kind in enumerate(found.layers) if kind == "full"] == [
        5,
        11,
        17,
        23,
        29,
    ]


def test_windows_that_are_not_used_and_windows_of_some_layers() -> None:
    window = {"sliding_window": 64, "max_window_layers": 3}
    assert shape(**window, use_sliding_window=False).layers == ("full",) * 4
    assert shape(**window, use_sliding_window=False).sliding_window is None
    assert shape(**window, use_sliding_window=True).layers == ("full",) * 3 + ("sliding",)
    assert shape(sliding_window=64).layers == ("sliding",) * 4
    assert shape(sliding_window=None, model_type="gemma2").layers == ("full",) * 4


def test_attention_in_chunks_reads_at_most_a_chunk() -> None:
    found = read_model_config("llama-4-scout-17b-16e-instruct")
    assert found.layers[:4] == ("sliding", "sliding", "sliding", "full")
    assert found.sliding_window == 8192
    kinds = ["chunked_attention", "full_attention"] * 2
    assert shape(layer_types=kinds, attention_chunk_size=64).layers == ("sliding", "full") * 2


def test_layers_with_experts() -> None:
    def moe(**fields: Any) -> str:
        return "".join("m" if one else "d" for one in shape(**MOE, **fields).is_moe)

    assert moe() == "mmmm"
    assert moe(first_k_dense_replace=1) == "dmmm"
    assert moe(moe_layer_freq=2) == "mdmd"
    assert moe(decoder_sparse_step=2) == "dmdm"
    assert moe(mlp_only_layers=[0, 3]) == "dmmd"
    assert moe(moe_layer_freq=[0, 1, 1, 0]) == "dmmd"
    assert moe(mlp_layer_types=["dense", "sparse", "sparse", "sparse"]) == "dmmm"
    assert shape(**{**MOE, "num_experts": 0}).is_moe == (False,) * 4


def test_gpt_oss_alternates_two_kinds_of_layers() -> None:
    found = read_model_config("gpt-oss-20b")
    assert found.kinds() == (0, 1) * 12
    assert found.layers[:2] == ("sliding", "full")
    assert found.sliding_window == 128
    assert read_model_config("deepseek-v3").kinds() == (0,) * 3 + (1,) * 58
