"""Checkpoints whose weights have 4 bits are read without rounding anything."""

from pathlib import Path
from typing import Any

import pytest
import torch

from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from tests.helpers import families
from tests.variants.model.grouped_checkpoints import LAYOUTS, Packed, save_packed


def load(folder: Path, dtype: Any = "fp32") -> LoadedModel:
    return load_model(resolve_model(str(folder)), "cpu", dtype)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_layout_gives_the_logits_of_the_dequantised_model(
    layout: Packed, tmp_path: Path
) -> None:
    expected = save_packed(tmp_path, layout)
    loaded = load(tmp_path)
    packed = [part for part in loaded.model.modules() if isinstance(part, QuantizedLinear)]
    assert len(packed) == (14 if layout.stays else 0)
    for name, module in expected.named_modules():
        if isinstance(module, torch.nn.Linear):
            mine = loaded.model.get_submodule(name)
            weight = (
                mine.weight
                if isinstance(mine, torch.nn.Linear)
                else mine.convert(mine.data, mine.scale, torch.float32, mine.packing)
            )
            assert torch.equal(weight, module.weight), name
    ids = families.prompt_ids("llama-biased", 2, 9)
    assert torch.equal(loaded.model(ids).logits, expected(ids).logits)
    (finding,) = loaded.findings
    print(finding.message)
