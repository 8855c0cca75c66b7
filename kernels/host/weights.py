"""How a weight matrix is passed to the kernels: its elements, scales and bias.

Every kernel that multiplies by weights takes a `WeightMatrix`, loads the elements in the type they
are stored in, converts them (`device/elements.py`) and multiplies each finished sum by its row's
scale. FP8 and INT8 are therefore another `data` and a `scale` (`host/quantize.py`), not another
kernel.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from decodescope.kernels.host.quantize import NARROW_DTYPES, NarrowFormat

Format = Literal["bf16", "fp16", "fp32"] | NarrowFormat

FORMATS: dict[torch.dtype, Format] = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    **{dtype: format for format, dtype in NARROW_DTYPES.items()},
}
_BIASES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class WeightMatrix:
    """W [rows, columns], row-major: W[r, k] = data[r, k] * scale[r], and y = W x + bias.

    `scale` is float32 [rows], None where every scale is 1; `bias` is [rows] in the model's dtype.

    Raises:
        ValueError: a shape, layout, dtype or mix of devices that no kernel here reads.
    """

    data: torch.Tensor
    scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.data.dim() != 2 or not self.data.is_contiguous() or 0 in self.data.shape:
            raise ValueError(
                f"weights {list(self.data.shape)} with strides {self.data.stride()}: must be a "
                "contiguous matrix [rows, columns], not empty"
            )
        if self.data.dtype not in FORMATS:
            raise ValueError(f"weights of {self.data.dtype}: must be one of {list(FORMATS)}")
        if self.scale is not None and self.scale.dtype != torch.float32:
            raise ValueError(f"scales of {self.scale.dtype}: must be float32")
        if self.bias is not None and self.bias.dtype not in _BIASES:
            raise ValueError(f"bias of {self.bias.dtype}: must be one of {list(_BIASES)}")
        for name, vector in (("scale", self.scale), ("bias", self.bias)):
            if vector is not None and (
                tuple(vector.shape) != (self.rows,)
                or not vector.is_contiguous()
                or vector.device != self.data.device
            ):
                raise ValueError(
                    f"{name} {list(vector.shape)} with strides {vector.stride()} on "
                    f"{vector.device}: must be contiguous [{self.rows}] on {self.data.device}"
                )

    @property
    def rows(self) -> int:
        return int(self.data.shape[0])

    @property
    def columns(self) -> int:
        return int(self.data.shape[1])

    @property
    def pointers(self) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Elements, scales and bias as kernel arguments."""
        return self.data, self.scale, self.bias

    @property
    def format(self) -> Format:
        return FORMATS[self.data.dtype]

    @property
    def bytes_read(self) -> int:
        """Bytes that one product must read of it: elements, scales and bias."""
        return sum(tensor.nbytes for tensor in self.pointers if tensor is not None)

    def dense(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """W with its scales applied, for references."""
        dense = self.data.to(dtype)
        return dense if self.scale is None else dense * self.scale.to(dtype)[:, None]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm before a product: x / sqrt(mean(x^2) + eps) * weight. `weight` is [features]."""

    weight: torch.Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class QkNorm:
    """RMSNorm over each head of Q and of K, before the rotation. Weights [head_dim]."""

    q_weight: torch.Tensor
    k_weight: torch.Tensor
    eps: float
