import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model import hub


def http_error(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, "refused")
    return error


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (http_error(errors.GatedRepoError), MissingRequirement, "gated"),
        (http_error(errors.RepositoryNotFoundError), MissingRequirement, "no public model"),
        (errors.LocalEntryNotFoundError("no"), MissingRequirement, "cannot be reached"),
        (errors.EntryNotFoundError("no"), ModelError, "no config.json"),
        (errors.HFValidationError("no"), InputError, "valid hub id"),
        (ConnectionError("no"), MissingRequirement, "cannot be reached"),
    ],
)
def test_each_refusal_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    expected: type[Exception],
    words: str,
) -> None:
    def download(*args: Any, **options: Any) -> str:
        raise raised

    monkeypatch.setattr(hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "_hub_answers", lambda: True)
    with pytest.raises(expected, match=words) as caught:
        hub.find_config("some/model")
    assert "\n" not in str(caught.value)


class SilentHub:
    """A client session on a machine without network."""

    requests = 0

    def head(self, url: str, timeout: float) -> None:
        SilentHub.requests += 1
        raise OSError("Name or service not known")


def test_without_network_only_the_cache_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "get_session", SilentHub)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    SilentHub.requests = 0
    with pytest.raises(MissingRequirement, match="model not found: some/model is not in the local"):
        hub.find_config("some/model")
    assert SilentHub.requests == 1


def test_a_cached_model_is_found_without_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "get_session", SilentHub)
    seen: dict[str, Any] = {}

    def download(hub_id: str, file: str, **options: Any) -> str:
        seen.update(options)
        return str(tmp_path / file)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    assert hub.find_config("some/model") == (tmp_path / "config.json", True)
    assert seen == {"local_files_only": True}


INDEX = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


def hub_with(files: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub repository that has these files; returns the names of what is fetched."""
    fetched: list[str] = []

    def download(hub_id: str, file: str, **options: Any) -> str:
        if file not in files:
            raise errors.EntryNotFoundError("no")
        fetched.append(file)
        (folder / file).write_text(files[file])
        return str(folder / file)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    return fetched


def test_only_the_files_that_hold_weights_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    single = {"model.safetensors": "", "model.safetensors.index.json": "", "x.bin": ""}
    fetched = hub_with(single, tmp_path, monkeypatch)
    assert hub.fetch_weights("some/model", False) == tmp_path
    assert fetched == ["model.safetensors"]
    index = "model.safetensors.index.json"
    sharded = dict.fromkeys(("one.safetensors", "two.safetensors", "three.safetensors"), "")
    fetched = hub_with(sharded | {index: json.dumps(INDEX)}, tmp_path, monkeypatch)
    assert hub.fetch_weights("some/model", False) == tmp_path
    assert fetched == [index, "one.safetensors", "two.safetensors"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"pytorch_model.bin": ""}, "no whole safetensors weights"),
        ({"model.safetensors.index.json": json.dumps(INDEX)}, "no whole safetensors weights"),
        (
            {"model.safetensors.index.json": '{"weight_map": {"a": "x.bin"}}', "x.bin": ""},
            r"names x\.bin; only safetensors",
        ),
    ],
)
def test_pickles_are_never_fetched(
    files: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = hub_with(files, tmp_path, monkeypatch)
    with pytest.raises(ModelError, match=words):
        hub.fetch_weights("some/model", False)
    assert not any(name.endswith(".bin") for name in fetched)


def test_weights_that_are_not_cached_are_not_found_offline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingRequirement, match="the weights of some/model are not in the local"):
        hub.fetch_weights("some/model", True)
