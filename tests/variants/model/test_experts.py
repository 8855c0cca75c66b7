"""Experts: their number against the weights', and the way in which transformers multiplies."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model import loading
from decodescope.variants.model.experts import (
    expert_counts,
    multiplying_by_experts,
    require_experts,
    set_prompt_way,
    step_way,
)
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets, resolve_model
from tests.helpers import families


def without_memory(family: str, dtype: torch.dtype, **fields: int) -> Any:
    config = AutoConfig.for_model(**(families.CONFIGS[family] | fields))
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


@pytest.mark.parametrize(
    ("batch", "dtype", "eager", "compiled"),
    [
        (1, torch.bfloat16, "batched_mm", "grouped_mm"),
        (16, torch.bfloat16, "batched_mm", "grouped_mm"),
        # Copies of more than 128 experts.
        (17, torch.bfloat16, None, "grouped_mm"),
        (17, torch.float16, None, "batched_mm"),
    ],
)
def test_the_way_of_a_step(
    batch: int, dtype: torch.dtype, eager: str | None, compiled: str
) -> None:
    model = build_random(presets()["qwen3-30b-a3b"].config, "meta", dtype)
    assert expert_counts(model.config) == (128, 8)
    assert step_way(model, batch, False) == eager
    assert step_way(model, batch, True) == compiled
    assert model.config._experts_implementation == "grouped_mm"


@pytest.mark.parametrize(
    ("family", "dtype", "prompt"),
    [
        ("mixtral", torch.float32, "grouped_mm"),
        ("qwen3-moe", torch.float32, "grouped_mm"),
        # Rows of 40 bytes.
        ("qwen3-moe", torch.bfloat16, "eager"),
        ("qwen3-moe-of-all", torch.float32, "eager"),
    ],
)
def test_rows_that_torch_cannot_group_are_copied(
    family: str, dtype: torch.dtype, prompt: str
) -> None:
    model = without_memory(family, dtype)
    set_prompt_way(model)
    assert model.config._experts_implementation == prompt
    assert step_way(model, 64, False) == (None if prompt == "grouped_mm" else "batched_mm")
    assert step_way(model, 1, True) == "batched_mm"


STORED = {
    "l.0.mlp.gate.weight": (7, 96),
    **{f"l.0.mlp.experts.{n}.{part}.weight": (20, 96) for n in range(7) for part in "gud"},
    "l.0.mlp.experts.0.g.weight_scale": (20,),
}
# As many experts, of which one has a number that config.json does not give.
RENUMBERED = {key.replace(".experts.3.", ".experts.7."): shape for key, shape in STORED.items()}
WITHOUT_3 = {key: shape for key, shape in STORED.items() if ".experts.3." not in key}


@pytest.mark.parametrize(
    ("fields", "stored", "complaint"),
    [
        ({}, {}, None),
        ({}, STORED, None),
        ({"num_experts_per_tok": 7}, STORED, None),
        ({"num_experts_per_tok": 8}, {}, r"^m: num_experts_per_tok 8 of 7 experts in config\.json"),
        ({"num_experts_per_tok": 0}, {}, "tok 0 of 7 experts in"),
        ({"num_experts": 6}, STORED, r"l\.0\.mlp has 7 experts of 40,320 .*, and 6 of 34,560 by"),
        ({}, RENUMBERED, r"l\.0\.mlp\.experts\.7 in the weights, and config\.json has 7 experts"),
        ({}, WITHOUT_3, "has 6 experts of 34,560 elements and a router for 7"),
        ({}, STORED | {"l.0.mlp.gate.weight": (5, 96)}, "7 experts of 40,320 .* a router for 5 in"),
        (
            {},
            STORED | {"l.0.mlp.experts.5.u.weight": (9, 96)},
            r"l\.0\.mlp\.experts\.5\.u\.weight is \[9, 96\] in the weights, and \[20, 96\] or ",
        ),
        (
            {},
            STORED
            | {"l.0.mlp.experts.2.g.weight": (96, 21), "l.0.mlp.experts.2.u.weight": (19, 96)},
            r"experts\.2\.g\.weight is \[96, 21\]",
        ),
        ({"moe_intermediate_size": 21}, STORED, r"0\.g\.weight is \[20, 96\] .*and \[21, 96\] or "),
        ({}, {key: shape[::-1] for key, shape in STORED.items() if "experts" in key}, None),
    ],
)
def test_experts_that_disagree_are_one_line(
    fields: dict[str, int], stored: dict[str, tuple[int, ...]], complaint: str | None
) -> None:
    skeleton = without_memory("qwen3-moe", torch.float32, **fields)
    if complaint is None:
        require_experts("m", skeleton, stored)
        return
    with pytest.raises(ModelError, match=complaint) as raised:
        require_experts("m", skeleton, stored)
    assert len(str(raised.value).splitlines()) == 1


def test_a_checkpoint_is_compared_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    families.build("mixtral").save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"num_local_experts": 3}))
    monkeypatch.setattr(loading, "_load_checkpoint", lambda *_: pytest.fail("was loaded"))
    with pytest.raises(ModelError, match=r"gate.weight is \[4, 96\] in the weights and \[3, 96\]"):
        load_model(resolve_model(str(tmp_path)), "cpu", "fp32")


def test_a_dense_model_and_one_on_the_cpu_stay_as_they_are() -> None:
    assert step_way(without_memory("llama2", torch.bfloat16), 1, True) is None
    mixture = families.build("mixtral")
    assert step_way(mixture, 1, False) is None
    with pytest.raises(KeyError, match="batched_mm"), multiplying_by_experts(mixture, "batched_mm"):
        raise KeyError(mixture.config._experts_implementation)
    assert mixture.config._experts_implementation == "eager"
