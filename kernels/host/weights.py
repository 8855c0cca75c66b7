"""How a weight matrix is passed to the kernels, and how one becomes FP8 or INT8.

Every kernel that multiplies by weights takes a `WeightMatrix`, loads the elements in the type they
are stored in, converts them (`device/elements.py`) and multiplies each finished sum by its row's
scale. FP8 and INT8 are therefore another `data` and a `scale`, not another kernel. Weights of 4
bits have a `packing`, which says where in `data` codes and scales of groups are (`packing.py`).

A row is an output channel: W[r, k] ~ data[r, k] scale[r] with scale[r] = max |W[r]| / L, where L is
the format's largest value (448 for E4M3, 57,344 for E5M2, 127 for INT8). The element is W / scale,
rounded to nearest, ties to even.

Sources: FP8 formats, Micikevicius et al. (arXiv 2209.05433) and OCP 8-bit Floating Point
Specification 1.0; scales for each output channel as in LLM.int8(), Dettmers et al.
(arXiv 2208.07339).
"""

from dataclasses import dataclass, replace
from typing import Literal, cast

import torch

from decodescope.kernels.host.packed import quantized_groups, unpacked
from decodescope.kernels.host.packing import Layout, PackedName, Packing, packing_of

ByteFormat = Literal["fp8_e4m3", "fp8_e5m2", "int8"]
NarrowFormat = ByteFormat | PackedName
Format = Literal["bf16", "fp16", "fp32"] | NarrowFormat

NARROW_DTYPES: dict[ByteFormat, torch.dtype] = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}

# Activations beside FP8 weights.
FP8_X = torch.float8_e4m3fn
# Activations beside INT4 weights, and their largest value: each is two int8, 256 upper + lower.
INTEGER_X = torch.int16
LARGEST_INTEGER = 256 * 127 + 127
# Activations beside FP8 weights, of several tokens: pairs of E4M3.
PAIR_X = torch.uint16
# Activations that have a scale for each token.
SCALED_X = (FP8_X, INTEGER_X, PAIR_X)

# float32 keeps no more digits of a quotient by a smaller scale. A row below it becomes zeros.
LEAST_SCALE = torch.finfo(torch.float32).tiny

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
    With a `packing`, `data` is int32 [rows, packing.width], and what it holds is multiplied by
    `scale`. `group_scales` int32 [words of scales, rows] repeats its scales of groups, transposed:
    products of several tokens read a word of each row at a time, and memory is read in sectors of
    32 bytes, which hold words of 8 rows here, and 8 words of one row in `data`.

    Raises:
        ValueError: a shape, layout, dtype or mix of devices that no kernel here reads.
    """

    data: torch.Tensor
    scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    packing: Packing | None = None
    group_scales: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.data.dim() != 2 or not self.data.is_contiguous() or 0 in self.data.shape:
            raise ValueError(
                f"weights {list(self.data.shape)} with strides {self.data.stride()}: must be a "
                "contiguous matrix [rows, columns], not empty"
            )
        if self.packing is None and self.data.dtype not in FORMATS:
            raise ValueError(f"weights of {self.data.dtype}: must be one of {list(FORMATS)}")
        if self.packing is not None and (
            self.data.dtype != torch.int32 or self.data.shape[1] != self.packing.width
        ):
            raise ValueError(
                f"weights of {self.data.dtype} {list(self.data.shape)}: {self.columns} columns of "
                f"{self.packing.format} must be int32 [rows, {self.packing.width}]"
            )
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
        if self.group_scales is not None and (
            self.packing is None
            or tuple(self.group_scales.shape)
            != (self.packing.width - self.packing.words, self.rows)
            or not self.group_scales.is_contiguous()
        ):
            raise ValueError(
                f"group_scales {list(self.group_scales.shape)} of {self.format} weights "
                f"{list(self.data.shape)}: must be those of `for_batches`"
            )

    @property
    def rows(self) -> int:
        return int(self.data.shape[0])

    @property
    def columns(self) -> int:
        return int(self.data.shape[1]) if self.packing is None else self.packing.columns

    @property
    def layout(self) -> Layout:
        """The compile-time constant by which kernels read it."""
        if self.packing is None:
            return self.columns, None, 0, 0
        rows = 0 if self.group_scales is None else self.rows
        return self.packing.width, self.packing.format.scales, self.packing.group, rows

    @property
    def pointers(self) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Elements, scales and bias as kernel arguments."""
        return self.data, self.scale, self.bias

    def for_batches(self) -> "WeightMatrix":
        """The matrix with `group_scales`, if products of several tokens read them."""
        packing = self.packing
        if packing is None or not packing.scales_sums:
            return self
        return replace(self, group_scales=self.data[:, packing.words :].mT.contiguous())

    def operands(self, batch: int) -> tuple[torch.Tensor | None, ...]:
        """`pointers` for the product with one token, `group_scales` behind them with several.

        Raises:
            ValueError: no `group_scales` where several tokens need them.
        """
        if batch == 1:
            return self.pointers
        if self.packing is not None and self.packing.scales_sums and self.group_scales is None:
            raise ValueError(f"{self.format} weights and {batch} tokens: need `for_batches`")
        return *self.pointers, self.group_scales

    @property
    def format(self) -> Format:
        return FORMATS[self.data.dtype] if self.packing is None else self.packing.format.name

    @property
    def narrow(self) -> bool:
        """Whether it has 8 or 4 bits. Products convert it and round x to float16, unless x has a
        scale for each token."""
        return self.packing is not None or self.data.element_size() == 1

    @property
    def takes_integers(self) -> bool:
        """Whether a product with one token can read int16 (`ops/rms_norm_integers.py`): of INT4 in
        whole chunks of columns."""
        packing = self.packing
        return packing is not None and not packing.format.e2m1 and packing.columns == packing.padded

    @property
    def takes_pairs(self) -> bool:
        """Whether a product with several tokens can read pairs (`ops/rms_norm_pairs.py`)."""
        return self.data.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)

    @property
    def bytes_read(self) -> int:
        """Bytes that one product must read of it: elements, scales and bias."""
        return sum(tensor.nbytes for tensor in self.pointers if tensor is not None)

    def dense(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """W with its scales applied, for references."""
        if self.packing is None:
            dense = self.data.to(dtype)
        else:
            dense = unpacked(self.data, self.packing, dtype)
        return dense if self.scale is None else dense * self.scale.to(dtype)[:, None]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm: x / sqrt(mean(x^2) + eps) * weight. `weight` is [features]. `centered`: LayerNorm
    without a bias, which subtracts the mean of x first."""

    weight: torch.Tensor
    eps: float
    centered: bool = False


@dataclass(frozen=True, slots=True)
class QkNorm:
    """RMSNorm over each head of Q and of K, before the rotation: weights [head_dim]. Or over all
    heads of Q and over all of K: weights [heads * head_dim] and [kv_heads * head_dim]. With
    `norms_v` each head of V has one too, without a weight."""

    q_weight: torch.Tensor
    k_weight: torch.Tensor
    eps: float
    norms_v: bool = False


def largest_value(dtype: torch.dtype) -> float:
    """L, the largest magnitude of which a narrow dtype stores both signs."""
    return 127.0 if dtype == torch.int8 else torch.finfo(dtype).max


def quantized_rows(
    matrix: torch.Tensor,
    format: NarrowFormat,
    scaled: bool = True,
    largest: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`matrix` [rows, columns] as elements of `format` and scales, float32 [rows]; of 4 bits as
    `packed.quantized_groups` says. Of columns of a wider matrix, `largest` float32 [rows] are the
    largest magnitudes of its whole rows.

    A row of zeros has scale 1. With `scaled` off there are no scales (None) and every element is
    rounded as it is; values beyond the format's largest one become that one. Takes 8 bytes of
    temporary memory for each element.

    Raises:
        ValueError: not a matrix of floats, a value that is NaN or infinite (names its row), or INT8
            without scales.
    """
    if matrix.dim() != 2 or not matrix.is_floating_point():
        raise ValueError(
            f"{matrix.dtype} {list(matrix.shape)}: must be a matrix of floating-point numbers"
        )
    if format == "int8" and not scaled:
        raise ValueError("int8 without scales: most weights are far below 1 and would become 0")
    values = matrix.float()
    largest = values.abs().amax(dim=1) if largest is None else largest
    if not bool(largest.isfinite().all()):
        row = int((~largest.isfinite()).nonzero()[0])
        raise ValueError(f"row {row} of the weights holds NaN or an infinity")
    if (packing := packing_of(format, int(matrix.shape[1]))) is not None:
        return quantized_groups(values, packing, largest)
    dtype = NARROW_DTYPES[cast(ByteFormat, format)]
    most = largest_value(dtype)
    scale: torch.Tensor | None = None
    if scaled:
        scale = largest / most
        scale = torch.where(scale < LEAST_SCALE, 1.0, scale)
        # `values` may be the caller's own memory.
        values = values / scale[:, None]
    values = values.clamp(-most, most)
    data = values.round_().to(dtype) if format == "int8" else values.to(dtype)
    return data, scale


def narrow_matrix(
    matrix: torch.Tensor,
    format: NarrowFormat,
    scaled: bool = True,
    bias: torch.Tensor | None = None,
) -> WeightMatrix:
    """`quantized_rows` as the kernels take them, with `bias`. Raises as `quantized_rows`."""
    packing = packing_of(format, int(matrix.shape[1]))
    return WeightMatrix(*quantized_rows(matrix, format, scaled), bias, packing).for_batches()
