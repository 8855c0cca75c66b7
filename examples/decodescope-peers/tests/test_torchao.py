"""torchao is asked for each format by its own options, and bytes are those that it stores."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_settings

from decodescope.variants.model.workload import DecodeWorkload
from decodescope_peers import torchao as peer
from decodescope_peers.torchao import stored_bytes


class _Packed(torch.Tensor):
    """As a tensor of torchao: states bf16 and stores FP8 with a scale for each row."""

    qdata: torch.Tensor
    scale: torch.Tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["qdata", "scale"], None


def test_bytes_are_those_that_are_stored(load_llama: Callable[..., Any]) -> None:
    model = load_llama().model.bfloat16()
    down = model.model.layers[0].mlp.down_proj
    plain = stored_bytes(model, 3)
    packed = down.weight.detach().as_subclass(_Packed)
    packed.qdata = torch.zeros(down.weight.shape, dtype=torch.float8_e4m3fn)
    packed.scale = torch.ones(down.weight.shape[0], 1)
    down.weight = torch.nn.Parameter(packed, requires_grad=False)
    down.weight.qdata, down.weight.scale = packed.qdata, packed.scale
    assert plain - stored_bytes(model, 3) == packed.qdata.nbytes - packed.scale.nbytes


@pytest.mark.parametrize(
    ("format", "config", "options"),
    [
        ("fp8_e4m3", "Float8WeightOnlyConfig", {}),
        ("int8", "Int8WeightOnlyConfig", {}),
        (
            "int4",
            "Int4WeightOnlyConfig",
            {"group_size": 128, "int4_packing_format": "tile_packed_to_4d"},
        ),
    ],
)
def test_each_format_is_asked_for_on_modules_of_its_own(
    format: Any,
    config: str,
    options: dict[str, Any],
    load_llama: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, asked = load_llama(), []
    quantization = SimpleNamespace(
        quantize_=lambda model, config: asked.append((model, config)),
        **{config: lambda **options: (config, options)},
    )
    torchao = ModuleType("torchao")
    monkeypatch.setattr(torchao, "quantization", quantization, raising=False)
    monkeypatch.setitem(sys.modules, "torchao", torchao)
    monkeypatch.setattr(inductor_settings, "coordinate_descent_tuning", False)
    monkeypatch.setattr(peer, "build_compiled", lambda own, workload, device: SimpleNamespace())
    peer.build_torchao(format, loaded, DecodeWorkload(1, 4, 5), "cuda")
    [(model, made)] = asked
    assert made == (config, {**options, "set_inductor_config": False})
    assert model is not loaded.model
    assert model.lm_head.weight is loaded.model.lm_head.weight
