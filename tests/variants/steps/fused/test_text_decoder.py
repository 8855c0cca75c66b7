"""Checkpoints that also read images: their text decoder is what every variant runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused.support import require_support, unsupported_fields
from tests.helpers import families
from tests.helpers.fused_steps import assert_logits_agree, both, ids_of

VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 16,
    "num_key_value_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def whole_model(family: str, folder: Path) -> Any:
    parts = {"text_config": families.CONFIGS[family], "vision_config": VISION}
    torch.manual_seed(1)
    config = AutoConfig.for_model(family.partition("-")[0], **parts)
    # Experts in groups need rows of 16 bytes each.
    model = AutoModelForImageTextToText.from_config(config, experts_implementation="eager")
    model.eval().requires_grad_(False)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", ["gemma3", "gemma4-moe"])
def test_its_text_decoder_runs_as_any_other(family: str, tmp_path: Path) -> None:
    whole = whole_model(family, tmp_path)
    loaded = load_model(resolve_model(str(tmp_path)), "cpu", "fp32")
    assert loaded.model.config.model_type == families.CONFIGS[family]["model_type"]
    assert loaded.weight_bytes == sum(
        weight.nbytes
        for name, weight in whole.named_parameters()
        if name.startswith("model.language_model.")
    )
    ids = families.prompt_ids(family, 2, 9)
    assert torch.equal(loaded.model(ids).logits, whole(ids).logits)
    step, eager = both(loaded, DecodeWorkload(1, 5, 3, "fp32"))
    given = ids_of(loaded, 1, seed=5)
    assert_logits_agree(step.forced_step(given), eager.forced_step(given))


def test_an_option_of_the_decoder_is_named(tmp_path: Path) -> None:
    whole_model("gemma3", tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert unsupported_fields(fields) is None
    fields["text_config"]["use_bidirectional_attention"] = True
    with pytest.raises(ModelError, match="m: the fused kernels cannot run use_bidirectional_att"):
        require_support("m", fields, 1, "cpu")
    # As transformers loads no LLaVA, its decoder is none that could run.
    assert str(unsupported_fields(fields | {"model_type": "llava"})).startswith("model_type llava")
