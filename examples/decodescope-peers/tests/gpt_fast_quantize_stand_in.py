"""A module with the names and layouts of gpt-fast's `quantize.py`, as far as INT4 needs them.
Written for the tests: layers multiply codes [rows, columns] as they are, gpt-fast's are packed."""

import torch
from torch import nn


def group_quantize_tensor(
    w: torch.Tensor, n_bit: int = 4, groupsize: int = 128
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes int32 and (scale, value of code 8) bf16 [groups, rows, 2]."""
    groups = w.float().unflatten(1, (-1, groupsize))
    low, high = groups.amin(2), groups.amax(2)
    scale = ((high - low) / (2**n_bit - 1)).clamp(min=1e-6).bfloat16()
    middle = (low + 8 * scale).bfloat16()
    least = middle - 8 * scale
    codes = ((groups - least[..., None]) / scale[..., None]).round().clamp(0, 15)
    return codes.flatten(1).int(), torch.stack((scale, middle), 2).transpose(0, 1).contiguous()


class WeightOnlyInt4Linear(nn.Module):
    weight: torch.Tensor
    scales_and_zeros: torch.Tensor

    def __init__(self, rows: int, columns: int, padded: int) -> None:
        super().__init__()
        self.columns, self.padded = columns, padded
        self.register_buffer("weight", torch.empty(rows, padded, dtype=torch.int32))
        scales = torch.empty(padded // 128, rows, 2, dtype=torch.bfloat16)
        self.register_buffer("scales_and_zeros", scales)

    def dense(self) -> torch.Tensor:
        scale, middle = self.scales_and_zeros.float().transpose(0, 1).unbind(2)
        codes = self.weight.float().unflatten(1, (scale.shape[1], -1))
        return ((codes - 8) * scale[..., None] + middle[..., None]).flatten(1)[:, : self.columns]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.float() @ self.dense().T).to(x.dtype)


class WeightOnlyInt4QuantHandler:
    def __init__(self, mod: nn.Module, groupsize: int = 128, inner_k_tiles: int = 8) -> None:
        self.mod, self.multiples = mod, (groupsize, 16 * inner_k_tiles)

    def convert_for_runtime(self) -> nn.Module:
        self._replace(self.mod)
        return self.mod

    def _replace(self, module: nn.Module) -> None:
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                columns = child.in_features
                fits = all(columns % multiple == 0 for multiple in self.multiples)
                padded = columns if fits else -(-columns // 1024) * 1024
                setattr(module, name, WeightOnlyInt4Linear(child.out_features, columns, padded))
            else:
                self._replace(child)
