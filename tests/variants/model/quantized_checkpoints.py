"""Small checkpoints with 8-bit weights, in the layouts that quantization libraries write."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from tests.helpers import families

WEIGHTS = "model.safetensors"
E4M3, E5M2, INT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
LARGEST = {E4M3: 448.0, E5M2: 57344.0, INT8: 127.0}

Fields = Mapping[str, Any]


def compressed_tensors(*weights: Fields, **fields: Any) -> dict[str, Any]:
    """The `quantization_config` of compressed-tensors, one group for each scheme of `weights`."""
    base = {
        "num_bits": 8,
        "type": "float",
        "symmetric": True,
        "strategy": "channel",
        "group_size": None,
        "block_structure": None,
        "dynamic": False,
        "observer": "minmax",
    }
    groups = {
        f"group_{number}": {
            "targets": ["Linear"],
            "weights": base | scheme,
            "input_activations": base | {"strategy": "token", "dynamic": True},
            "output_activations": None,
        }
        for number, scheme in enumerate(weights)
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": groups,
    } | fields


@dataclass(frozen=True)
class Layout:
    """How a library stores a quantized Linear layer. `scale` makes the tensor of the scales from
    those of the rows, float32 [rows], which all are equal if `whole`; None stores none.

    `config` is the `quantization_config`, `extra` the tensors beside each weight.
    """

    config: Fields | None
    dtype: torch.dtype = E4M3
    scale: Callable[[torch.Tensor], torch.Tensor] | None = lambda rows: rows[:, None]
    whole: bool = False
    name: str = "weight_scale"
    head: bool = False
    extra: Fields = field(default_factory=dict)


_KV = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
_FBGEMM = {
    "quant_method": "fbgemm_fp8",
    "activation_scale_ub": 1200.0,
    "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"],
}
_MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
LAYOUTS: dict[str, Layout] = {
    "compressed-tensors FP8, scales of rows in bf16": Layout(
        compressed_tensors({}), scale=lambda rows: rows[:, None].bfloat16()
    ),
    "compressed-tensors FP8, one scale and static activations": Layout(
        compressed_tensors({"strategy": "tensor"}),
        scale=lambda rows: rows[:1],
        whole=True,
        extra={"input_scale": torch.tensor([0.1])},
    ),
    "compressed-tensors INT8": Layout(
        compressed_tensors({"type": "int"}, format="int-quantized"), INT8
    ),
    "compressed-tensors INT8 in fp16, weights only": Layout(
        compressed_tensors({"type": "int"}, format="naive-quantized"),
        INT8,
        lambda rows: rows[:, None].half(),
    ),
    "compressed-tensors FP8 with K and V": Layout(
        compressed_tensors({}, kv_cache_scheme=_KV),
        extra={"output_scale": torch.tensor([0.5]), "k_scale": torch.tensor(1.0)},
    ),
    "compressed-tensors, the head too": Layout(compressed_tensors({}, ignore=[]), head=True),
    "AutoFP8": Layout(
        {"quant_method": "fp8", "activation_scheme": "static"},
        scale=lambda rows: rows[0],
        whole=True,
        extra={"input_scale": torch.tensor(0.1)},
    ),
    "transformers' fp8, one scale": Layout(
        {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        scale=lambda rows: rows[0],
        whole=True,
        name="weight_scale_inv",
        extra={"activation_scale": torch.tensor(0.1)},
    ),
    "fbgemm": Layout(_FBGEMM, extra={"input_scale_ub": torch.tensor([1200.0])}),
    "modelopt": Layout(
        _MODELOPT,
        scale=lambda rows: rows[0],
        whole=True,
        extra={"input_scale": torch.tensor(0.1)},
    ),
    "modelopt, scales of rows": Layout(
        _MODELOPT | {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, scale=lambda rows: rows
    ),
    # Its quantization is in hf_quant_config.json, which nothing needs.
    "modelopt before config.json named it": Layout(
        None, scale=lambda rows: rows[0], whole=True, extra={"input_scale": torch.tensor(0.1)}
    ),
    "E5M2 that config.json does not mention": Layout(None, E5M2),
    "E5M2 without scales": Layout(None, E5M2, None),
}


def quantized(weight: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements, and scales float32 [rows] as rounded to the dtype in which they are stored."""
    largest = weight.abs().amax(dim=1)
    rows = torch.full_like(largest, float(largest.max())) if layout.whole else largest
    rows = rows / LARGEST[layout.dtype]
    if layout.scale is None:
        rows = torch.ones_like(rows)
    else:
        rows = layout.scale(rows).float().reshape(-1).expand(len(rows))
    values = weight / rows[:, None]
    values = values.clamp(-LARGEST[layout.dtype], LARGEST[layout.dtype])
    return (values.round() if layout.dtype == INT8 else values).to(layout.dtype), rows


def save_quantized(folder: Path, family: str, layout: Layout) -> PreTrainedModel:
    """Save the family's checkpoint; returns its model with the dequantized weights, in fp32."""
    model = families.build(family)
    model.save_pretrained(folder)
    if layout.config is not None:
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = layout.config
        (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / WEIGHTS)
    skipped = (layout.config or {}).get("modules_to_not_convert", [])
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or name in skipped:
            continue
        if name == "lm_head" and not layout.head:
            continue
        data, rows = quantized(module.weight, layout)
        tensors[f"{name}.weight"] = data
        if layout.scale is not None:
            tensors[f"{name}.{layout.name}"] = layout.scale(rows).clone()
        for end, value in layout.extra.items():
            tensors[f"{name}.{end}"] = value.clone()
        # A tied head becomes one of its own.
        module.weight = nn.Parameter(data.float() * rows[:, None], requires_grad=False)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    return model
