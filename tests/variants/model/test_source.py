import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model.source import needs_custom_code, presets, read_config, resolve_model


def make_folder(folder: Path, *files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for file in files:
        (folder / file).write_text("{}")
    return folder


def test_each_kind_of_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "config.json", "model.safetensors")
    assert resolve_model("tiny").kind == "tiny"
    assert resolve_model("llama-3.2-1b@random").preset is presets()["llama-3.2-1b"]
    assert resolve_model("llama-3.2-1b").hub_id == "meta-llama/Llama-3.2-1B"
    assert resolve_model("someone/some-model").hub_id == "someone/some-model"
    assert resolve_model("gpt2").kind == "hub"
    assert resolve_model(str(folder)).folder == folder


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("llama-3.2-1B", "llama-3.2-1b"),
        ("llama3.2-1b@random", "llama-3.2-1b@random"),
        ("tinyy", "tiny"),
        ("qwen-0.6b", "qwen3-0.6b"),
    ],
)
def test_a_misspelt_preset_suggests_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean {nearest}\?"):
        resolve_model(name)


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "x/y z", "@random", "meta-llama/Llama-3.2-1B@random"]
)
def test_a_name_of_no_model_is_bad_input(name: str) -> None:
    with pytest.raises(InputError):
        resolve_model(name)


@pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "~/none", "a/b/c"])
def test_a_missing_path_is_a_model_not_found(name: str) -> None:
    with pytest.raises(MissingRequirement, match="model not found"):
        resolve_model(name)


def test_a_file_that_is_no_gguf_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.touch()
    with pytest.raises(ModelError, match=r"model\.bin: a file, and neither a folder"):
        resolve_model(str(path))


def test_a_folder_must_hold_a_configuration_and_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolve_model(str(make_folder(tmp_path / "a", "model.safetensors")))
    with pytest.raises(ModelError, match="no weights"):
        resolve_model(str(make_folder(tmp_path / "b", "config.json")))


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_by_name(tmp_path: Path, weights: str) -> None:
    folder = make_folder(tmp_path / "pickled", "config.json", weights)
    with pytest.raises(ModelError, match=rf"pickled weights \({weights}\).*safetensors"):
        resolve_model(str(folder))


def test_custom_code_is_needed_only_for_unknown_architectures() -> None:
    known = frozenset({"llama"})
    auto_map = {"AutoModelForCausalLM": "modeling.Mine"}
    assert needs_custom_code({"model_type": "mine", "auto_map": auto_map}, known)
    assert not needs_custom_code({"model_type": "llama", "auto_map": auto_map}, known)
    assert not needs_custom_code({"model_type": "mine"}, known)


@pytest.mark.parametrize("field", ["attn_implementation", "_attn_implementation"])
def test_attention_from_the_hub_is_custom_code(field: str) -> None:
    known = frozenset({"llama"})
    assert needs_custom_code({"model_type": "llama", field: "someone/attention"}, known)
    assert needs_custom_code({"model_type": "llama", "text": {field: "a/b"}}, known)
    assert not needs_custom_code({"model_type": "llama", field: "sdpa"}, known)


@pytest.mark.parametrize("text", ["{", "[]", "nonsense"])
def test_a_broken_configuration_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


def test_a_number_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "rope_parameters": {"rope_theta": NaN}}')
    with pytest.raises(ModelError, match=r"rope_parameters\.rope_theta is NaN; must be a number"):
        read_config(path)
    path.write_text('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    assert read_config(path)["model_type"] == "mamba2"


def test_resolving_imports_no_torch(repository: Path) -> None:
    code = (
        "import sys; from decodescope.variants.model.source import resolve_model; "
        "resolve_model('llama-3.1-8b@random'); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository / "src", check=False)
    assert done.returncode == 0
