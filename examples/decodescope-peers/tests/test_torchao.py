"""The bytes of torchao's weights are those that are stored."""

from collections.abc import Callable
from typing import Any

import torch

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
