"""Small checkpoints with 4-bit weights, packed word by word as the formats' specifications say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from tests.helpers import families
from tests.variants.model.quantized_checkpoints import WEIGHTS, compressed_tensors

Tensors = dict[str, torch.Tensor]
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Of hidden and intermediate size: whole groups of 32.
SIZES = {"hidden_size": 96, "intermediate_size": 160}


@dataclass
class Drawn:
    """codes uint8 [rows, columns]; scales [rows, groups]; zeros uint8 [rows, groups]; the group of
    each column."""

    codes: np.ndarray
    scales: torch.Tensor
    zeros: np.ndarray
    group_of: np.ndarray

    def integers(self) -> torch.Tensor:
        """The weights in float32."""
        codes = self.codes.astype(np.float64) - self.zeros[:, self.group_of]
        return torch.tensor(codes * self.scales.double().numpy()[:, self.group_of]).float()

    def e2m1(self, whole: float = 1.0) -> torch.Tensor:
        table = np.array([*E2M1, *(-value for value in E2M1)])
        scales = self.scales.double().numpy()[:, self.group_of]
        return torch.tensor(table[self.codes] * scales * whole).float()


def words(codes: np.ndarray, axis: int, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """int32: place i of each word along `axis` has code `order[i]` of eight."""
    moved = np.moveaxis(codes, axis, -1)
    padded = np.pad(moved, ((0, 0), (0, -moved.shape[-1] % 8))).astype(np.uint32)
    made = np.zeros((padded.shape[0], padded.shape[1] // 8), dtype=np.uint32)
    for place, code in enumerate(order):
        made |= padded[:, code::8] << np.uint32(4 * place)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(made, -1, axis)).view(np.int32))


def bytes_of(codes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(codes[:, 0::2] | (codes[:, 1::2] << 4))


Pack = Callable[[Drawn], tuple[Tensors, torch.Tensor]]


@dataclass(frozen=True)
class Packed:
    """How a format stores a Linear layer: its `quantization_config`, and what makes its tensors,
    without the layer's name, and its weights. `middle`: every zero point is 8. `stays`: fused
    kernels read it as it is."""

    config: dict[str, Any]
    pack: Pack
    group: int = 32
    scales: torch.dtype = torch.float16
    middle: bool = False
    ordered: bool = True
    stays: bool = True
    sizes: Mapping[str, Any] = field(default_factory=lambda: SIZES)


def _pack_quantized(zeros: bool = False, order: bool = False) -> Pack:
    def pack(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
        tensors = {
            "weight_packed": words(drawn.codes, 1),
            "weight_scale": drawn.scales,
            "weight_shape": torch.tensor(drawn.codes.shape),
        }
        if zeros:
            tensors["weight_zero_point"] = words(drawn.zeros, 0)
        if order:
            tensors["weight_g_idx"] = torch.from_numpy(drawn.group_of).int()
        return tensors, drawn.integers()

    return pack


def _gptq(one_less: bool = True) -> Pack:
    def pack(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
        zeros = words(drawn.zeros.T, 1).numpy()
        if one_less:
            zeros = (zeros.view(np.uint32) - np.uint32(0x11111111)).view(np.int32)
        tensors = {
            "qweight": words(drawn.codes.T, 0),
            "scales": drawn.scales.T.contiguous(),
            "qzeros": torch.from_numpy(zeros),
            "g_idx": torch.from_numpy(drawn.group_of).int(),
        }
        return tensors, drawn.integers()

    return pack


def _awq(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {
        "qweight": words(drawn.codes.T, 1, order),
        "scales": drawn.scales.T.contiguous(),
        "qzeros": words(drawn.zeros.T, 1, order),
    }
    return tensors, drawn.integers()


def _nvfp4(global_scale: float) -> Pack:
    def pack(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
        tensors = {
            "weight_packed": bytes_of(drawn.codes),
            "weight_scale": drawn.scales,
            "weight_global_scale": torch.tensor([global_scale]),
            "input_global_scale": torch.tensor([3.0]),
        }
        return tensors, drawn.e2m1(1 / global_scale)

    return pack


def _modelopt(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
    whole = torch.tensor(0.0123)
    tensors = {
        "weight": bytes_of(drawn.codes),
        "weight_scale": drawn.scales,
        "weight_scale_2": whole,
        "input_scale": torch.tensor(0.1),
    }
    return tensors, drawn.e2m1(whole.double().item())


def _mxfp4(drawn: Drawn) -> tuple[Tensors, torch.Tensor]:
    tensors = {
        "weight_packed": bytes_of(drawn.codes),
        "weight_scale": drawn.scales.view(torch.uint8),
    }
    return tensors, drawn.e2m1()


def _integers(**scheme: Any) -> dict[str, Any]:
    base = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    return compressed_tensors(base | scheme, format="pack-quantized")


def _floats(form: str, **scheme: Any) -> dict[str, Any]:
    base = {"num_bits": 4, "type": "float", "strategy": "tensor_group"}
    return compressed_tensors(base | scheme, format=form)


def _gptq_config(**fields: Any) -> dict[str, Any]:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": False}
    return base | fields


_ASYMMETRIC = _integers(symmetric=False)
_CHANNEL = {"strategy": "channel", "group_size": None}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
_MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
# Not all of their groups are whole.
_ODD = {"hidden_size": 96, "intermediate_size": 136}
LAYOUTS: dict[str, Packed] = {
    "compressed-tensors": Packed(_integers(), _pack_quantized(), middle=True),
    "compressed-tensors in bf16, zero points": Packed(
        _ASYMMETRIC, _pack_quantized(zeros=True), scales=torch.bfloat16
    ),
    "compressed-tensors, channels": Packed(
        _integers(**_CHANNEL), _pack_quantized(), group=0, middle=True, sizes=_ODD
    ),
    "compressed-tensors, channels with zero points": Packed(
        _integers(**_CHANNEL, symmetric=False), _pack_quantized(zeros=True), group=0, sizes=_ODD
    ),
    "compressed-tensors, actorder static": Packed(
        _integers(actorder="static"), _pack_quantized(), middle=True
    ),
    "compressed-tensors, actorder group": Packed(
        _integers(actorder="group"),
        _pack_quantized(order=True),
        middle=True,
        ordered=False,
        stays=False,
    ),
    "compressed-tensors, groups of 16": Packed(
        _integers(group_size=16), _pack_quantized(), group=16, middle=True, stays=False
    ),
    "compressed-tensors, scales in fp32": Packed(
        _ASYMMETRIC, _pack_quantized(zeros=True), scales=torch.float32, stays=False
    ),
    "GPTQ": Packed(_gptq_config(), _gptq()),
    "GPTQ, symmetric": Packed(_gptq_config(sym=True), _gptq(), middle=True),
    "GPTQ, the last group is short": Packed(_gptq_config(), _gptq(), sizes=_ODD),
    "GPTQ in groups of 96": Packed(
        _gptq_config(group_size=96),
        _gptq(),
        group=96,
        sizes={"hidden_size": 96, "intermediate_size": 192},
    ),
    "GPTQ v2, channels": Packed(
        _gptq_config(checkpoint_format="gptq_v2", group_size=-1), _gptq(False), group=0
    ),
    "GPTQ, desc_act": Packed(_gptq_config(desc_act=True), _gptq(), ordered=False, stays=False),
    "AWQ": Packed(_AWQ, _awq),
    "NVFP4 of compressed-tensors": Packed(
        _floats("nvfp4-pack-quantized", group_size=16),
        _nvfp4(512.0),
        group=16,
        scales=torch.float8_e4m3fn,
    ),
    "NVFP4 of ModelOpt": Packed(_MODELOPT, _modelopt, group=16, scales=torch.float8_e4m3fn),
    "MXFP4 of compressed-tensors": Packed(
        _floats("mxfp4-pack-quantized", strategy="group", group_size=32),
        _mxfp4,
        scales=torch.float8_e8m0fnu,
    ),
}


def with_one_layer(layout: Packed) -> Packed:
    return replace(layout, sizes={**layout.sizes, "num_hidden_layers": 1})


def drawn(rows: int, columns: int, layout: Packed, random: np.random.Generator) -> Drawn:
    """All codes and zero points, and scales of both signs."""
    group = layout.group or columns
    groups = -(-columns // group)
    scales = torch.from_numpy(random.uniform(0.2, 1, (rows, groups)))
    if layout.scales.itemsize > 1:
        scales *= torch.from_numpy(random.choice([1.0, -1.0], (rows, groups))) * columns**-0.5 / 8
    else:
        scales /= 4 if layout.scales == torch.float8_e4m3fn else 16
    zeros = random.integers(0, 16, (rows, groups), dtype=np.uint8)
    group_of = np.arange(columns) // group
    return Drawn(
        random.integers(0, 16, (rows, columns), dtype=np.uint8),
        scales.to(layout.scales),
        np.full_like(zeros, 8) if layout.middle else zeros,
        group_of if layout.ordered else random.permutation(group_of),
    )


def save_packed(
    folder: Path, layout: Packed, family: str = "llama-biased", head: bool = False
) -> PreTrainedModel:
    """Save the family's checkpoint in this layout; returns its model with the weights, in fp32."""
    model = families.build(family, **layout.sizes)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = layout.config
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / WEIGHTS)
    random = np.random.default_rng(0)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and (head or name != "lm_head"):
            rows, columns = module.weight.shape
            stored, weight = layout.pack(drawn(rows, columns, layout, random))
            tensors.pop(f"{name}.weight", None)
            tensors |= {f"{name}.{end}": value.clone() for end, value in stored.items()}
            module.weight = nn.Parameter(weight, requires_grad=False)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / WEIGHTS)
    return model


def save_mixed(
    folder: Path, first: Packed, second: Packed, part: str, fields: Mapping[str, Any]
) -> PreTrainedModel:
    """Save a checkpoint in the first layout, of which each `part` is in the second; `fields` are
    added to the quantization_config. Returns its model with the weights, in fp32."""
    expected = save_packed(folder, first)
    other = save_packed(folder / "other", replace(second, sizes=first.sizes))
    tensors, others = (load_file(each / WEIGHTS) for each in (folder, folder / "other"))
    mixed = {key: value for key, value in tensors.items() if part not in key}
    save_file(mixed | {key: others[key] for key in others if part in key}, folder / WEIGHTS)
    for name, module in other.named_modules():
        if name.endswith(part):
            expected.set_submodule(name, module)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= fields
    (folder / "config.json").write_text(json.dumps(config))
    return expected


def both_groups(first: Packed, second: Packed) -> dict[str, Any]:
    """The fields of compressed-tensors for matrices of both."""
    groups = (layout.config["config_groups"]["group_0"] for layout in (first, second))
    return {
        "format": "mixed-precision",
        "config_groups": {f"group_{number}": group for number, group in enumerate(groups)},
    }
