"""How a product with a weight matrix is launched, for one token or for several.

Batch 1 runs on the CUDA cores (`device/vector_product.py`), batch 2 to 64 on the tensor cores
(`device/batched_product.py`). Both kernels of an operation take the same arguments, followed by the
compile-time constants of `product_options`. Only the kernels of batch 1 apply a norm.

x is what the model computes in, or E4M3 with a float32 scale for each token (W8A8): x[b, k] =
codes[b, k] x_scale[b]. It is then multiplied by FP8 weights as it is, on the FP8 tensor cores. Or,
of several tokens, it is uint16 likewise, pairs of E4M3 (`ops/rms_norm_pairs.py`). Or, of one token
beside INT4 weights, int16 likewise, ordered as `ops/rms_norm_integers.py` says.
"""

from typing import Any

import torch

from decodescope.kernels.host.checks import (
    check_activations,
    check_norm,
    check_tensor,
    check_unsplit,
)
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.packed import in_column_order, sums_of_pairs
from decodescope.kernels.host.packing import CHUNK, PACKED_FORMATS
from decodescope.kernels.host.tile import MAX_REGISTERS, MIN_DOT, Tile, padded_tokens
from decodescope.kernels.host.weights import INTEGER_X, PAIR_X, SCALED_X, Norm, WeightMatrix

FP8_TENSOR_CORES = (8, 9)
# Converted by `device.elements.words_as_float16`. Any other narrow element is loaded by itself.
_IN_WORDS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)


class Product(KernelOperation):
    """A product of activations `x` with weights. Quantised x has a scale for each token, `x_scale`
    float32 [batch]; for any other dtype it is None. A norm needs a batch of 1 and no `x_scale`."""

    __slots__ = ()

    x_scale: torch.Tensor | None

    @property
    def values(self) -> torch.Tensor:
        """x with its scales applied, for references."""
        if self.x_scale is None:
            return self.x
        values = {INTEGER_X: in_column_order, PAIR_X: sums_of_pairs}.get(self.x.dtype)
        x = self.x if values is None else values(self.x)
        return x.double() * self.x_scale.double()[:, None]

    def inputs(self, position: int) -> Tensors:
        return self.x, *self.scales_of_x, *self.weights

    @property
    def scales_of_x(self) -> Tensors:
        """The scales of x that a launch reads."""
        return () if self.x_scale is None else (self.x_scale,)

    def checked_batch(self, weight: WeightMatrix) -> int:
        """The batch of x. Raises as `check_activations` and `check_x_scale`."""
        batch = check_activations(self.x, weight.columns, weight.data.device)
        check_x_scale(self.x, self.x_scale, weight)
        return batch


class NormedProduct(Product):
    """A product of RMSNorm(x), or of x where `norm` is None. Each output is one program's, unless
    an operation adds up the splits of a batch."""

    __slots__ = ()

    norm: Norm | None
    tile: Tile

    def checked_batch(self, weight: WeightMatrix, splits_batch: bool = False) -> int:
        batch = super().checked_batch(weight)
        check_norm(self.norm, weight.columns, self.x.device)
        if batch == 1 or not splits_batch:
            check_unsplit(self.tile)
        return batch

    def launched(
        self,
        kernels: tuple[Any, Any],
        programs: int,
        weight: WeightMatrix,
        tensors: tuple[torch.Tensor | None, ...],
        numbers: tuple[float | None, ...],
        pdl: bool,
        **constants: Any,
    ) -> Launch:
        """Launch the first of `kernels` for one token, the second for several. Both take x, its
        scales, the norm's weight, `weight`, `tensors`, the norm's eps and `numbers`."""
        g, eps = norm_arguments(self.norm, len(self.x), self.x_scale)
        return launch(
            kernels[len(self.x) > 1],
            (programs, self.tile.splits),
            self.x,
            self.x_scale,
            g,
            *weight.operands(len(self.x)),
            *tensors,
            eps,
            *numbers,
            **constants,
            **product_options(self.x, weight, self.tile, pdl),
        )


def check_x_scale(x: torch.Tensor, x_scale: torch.Tensor | None, weight: WeightMatrix) -> None:
    """Raise `ValueError` unless x [batch, columns] and its scales are what `Product` says, and
    E4M3 x and pairs meet FP8 weights, on a GPU with FP8 tensor cores, and int16 of one token INT4.
    """
    narrow = x.dtype in SCALED_X
    if (x_scale is None) == narrow:
        needed = "one for each token" if narrow else "None"
        raise ValueError(f"x_scale with x of {x.dtype}: must be {needed}")
    if x_scale is None:
        return
    check_tensor("x_scale", x_scale, (int(x.shape[0]),), torch.float32, x.device)
    if x.dtype == INTEGER_X:
        if not weight.takes_integers or len(x) > 1:
            raise ValueError(
                f"{list(x.shape)} x of {x.dtype} with {weight.format} weights: must be one token "
                f"and INT4, of a multiple of {CHUNK} columns"
            )
        return
    if x.dtype == PAIR_X and len(x) == 1:
        raise ValueError(f"{list(x.shape)} x of {x.dtype}: pairs must be of several tokens")
    if not weight.takes_pairs:
        raise ValueError(
            f"{weight.format} weights with x of {x.dtype}: x must be float16 or bfloat16"
        )
    if not multiplies_fp8(x.device):
        raise ValueError(
            f"x is {x.dtype}: this GPU has no FP8 tensor cores (compute capability 8.9 or later); "
            "x must be float16 or bfloat16"
        )


def multiplies_fp8(device: torch.device) -> bool:
    """Whether the GPU has FP8 tensor cores; the interpreter needs none."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= FP8_TENSOR_CORES


def norm_arguments(
    norm: Norm | None, batch: int = 1, x_scale: torch.Tensor | None = None
) -> tuple[torch.Tensor | None, float]:
    """The norm's weight and eps as kernel arguments.

    Raises:
        ValueError: a norm of several tokens, one that is centered, or with scales of x, which are
            those of normalised x.
    """
    if norm is not None and x_scale is not None:
        raise ValueError("a norm with x_scale: the launch that quantises x applies the norm")
    if norm is not None and batch > 1:
        raise ValueError(f"a norm of {batch} tokens: needs a launch of its own, RmsNorm")
    if norm is not None and norm.centered:
        raise ValueError("a centered norm: needs a launch of its own, RmsNorm")
    return (None, 0.0) if norm is None else (norm.weight, norm.eps)


def product_options(x: torch.Tensor, weight: WeightMatrix, tile: Tile, pdl: bool) -> dict[str, Any]:
    """Compile-time constants and launch options of the product of `weight` and x [batch, columns].

    Raises:
        ValueError: several tokens with a tile below 16 x 16.
    """
    batch = int(x.shape[0])
    packed = weight.format in PACKED_FORMATS
    options: dict[str, Any] = {
        "K": weight.columns,
        "LAYOUT": weight.layout,
        "ROWS": tile.rows,
        # FP8 tensor cores multiply 32 columns at least, and formats of 4 bits have chunks of 32.
        "BLOCK": max(CHUNK, tile.columns) if packed or x.dtype in SCALED_X else tile.columns,
        "PDL": pdl,
        "num_warps": tile.num_warps,
    }
    if tile.max_registers < MAX_REGISTERS:
        options["maxnreg"] = tile.max_registers
    if batch == 1:
        return options | {"AHEAD": tile.blocks_ahead(weight.columns)}
    if tile.rows < MIN_DOT or tile.columns < MIN_DOT:
        raise ValueError(
            f"tile of {tile.rows} x {tile.columns}: the tensor cores need at least "
            f"{MIN_DOT} x {MIN_DOT}"
        )
    return options | {
        "BATCH": batch,
        "TOKENS": padded_tokens(batch),
        "WORDS": _loads_words(x, weight, tile),
        "num_stages": tile.num_stages,
    }


def _loads_words(x: torch.Tensor, weight: WeightMatrix, tile: Tile) -> bool:
    """Whether a batched product loads its weights as words of four elements.

    It does where the tensor cores take a tile of narrow weights from registers (wgmma: 64 rows and
    four warps, compute capability 9.0), and on 10.0. Others, 12.0 among them, take it in a layout
    that words do not have, so that Triton passes the converted elements through shared memory
    again.
    """
    return (
        weight.data.dtype in _IN_WORDS
        and x.dtype in (torch.float16, torch.bfloat16)
        and weight.columns % 16 == 0
        and tile.rows >= 64
        and tile.num_warps >= 4
        and (not x.is_cuda or torch.cuda.get_device_capability(x.device)[0] in (9, 10))
    )
