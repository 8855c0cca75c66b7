"""Fused steps on checkpoints with 4-bit weights, against transformers on the dequantised model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from tests.helpers.fused_steps import fused
from tests.variants.model.grouped_checkpoints import LAYOUTS, Packed, save_packed
from tests.variants.model.quantized_checkpoints import WEIGHTS
from tests.variants.steps.fused.test_quantized_checkpoint import assert_agrees, load

STAYING = {name: layout for name, layout in LAYOUTS.items() if layout.stays}
DEQUANTISED = {name: layout for name, layout in LAYOUTS.items() if not layout.stays}


@pytest.mark.parametrize("layout", STAYING.values(), ids=list(STAYING))
def test_every_layout_is_decoded_as_it_is(layout: Packed, device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, layout)
    assert_agrees(load(tmp_path, device), expected)


@pytest.mark.parametrize("name", ["AWQ", "NVFP4 of ModelOpt"])
def test_a_batch(name: str, device: str, tmp_path: Path) -> None:
    expected = save_packed(tmp_path, LAYOUTS[name])
    workload = DecodeWorkload(3, 5, 3, "fp32")
    assert_agrees(load(tmp_path, device), expected, workload=workload)
