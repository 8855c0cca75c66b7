"""Fused steps on GGUF files, against the model that transformers makes of them."""

from pathlib import Path

import pytest

from tests.variants.model.gguf_checkpoints import MIXES, by_transformers, save_gguf
from tests.variants.steps.fused.test_quantized_checkpoint import assert_agrees, load


@pytest.mark.parametrize("mix", ["Q4_0", "Q4_K_M"])
def test_a_file_is_decoded(mix: str, device: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES[mix])
    assert_agrees(load(path, device), by_transformers(path))
