"""The options of a product that depend on the GPU."""

from types import SimpleNamespace

import pytest
import torch

from decodescope.kernels.host.product import product_options
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import narrow_matrix


@pytest.mark.parametrize(
    ("capability", "words"), [((8, 9), False), ((9, 0), True), ((10, 0), True), ((12, 0), False)]
)
def test_narrow_weights_are_loaded_as_words_where_registers_multiply(
    capability: tuple[int, int], words: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    x = SimpleNamespace(dtype=torch.bfloat16, shape=(16, 64), is_cuda=True, device="cuda")
    matrix = narrow_matrix(torch.randn(64, 64), "int8")
    assert product_options(x, matrix, Tile(64, 64, 4), True)["WORDS"] == words
