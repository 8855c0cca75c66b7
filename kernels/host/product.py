"""How a product with a weight matrix is launched, for one token or for several.

Batch 1 runs on the CUDA cores (`device/vector_product.py`), batch 2 to 64 on the tensor cores
(`device/batched_product.py`). Both kernels of an operation take the same arguments, followed by the
compile-time constants of `product_options`.
"""

from typing import Any

import torch

from decodescope.kernels.host.tile import MIN_DOT, Tile, padded_tokens
from decodescope.kernels.host.weights import Norm, WeightMatrix


def norm_arguments(norm: Norm | None) -> tuple[torch.Tensor | None, float]:
    """The norm's weight and eps as kernel arguments."""
    return (None, 0.0) if norm is None else (norm.weight, norm.eps)


def product_options(x: torch.Tensor, weight: WeightMatrix, tile: Tile, pdl: bool) -> dict[str, Any]:
    """Compile-time constants and launch options of the product of `weight` and x [batch, columns].

    Raises:
        ValueError: several tokens with a tile below 16 x 16.
    """
    options: dict[str, Any] = {
        "K": weight.columns,
        "ROWS": tile.rows,
        "BLOCK": tile.columns,
        "PDL": pdl,
        "num_warps": tile.num_warps,
    }
    batch = int(x.shape[0])
    if batch == 1:
        return options | {"AHEAD": tile.blocks_ahead(weight.columns)}
    if tile.rows < MIN_DOT or tile.columns < MIN_DOT:
        raise ValueError(
            f"tile of {tile.rows} x {tile.columns}: the tensor cores need at least "
            f"{MIN_DOT} x {MIN_DOT}"
        )
    # In the interpreter, tl.dot reads bfloat16 as the integers that store it, and casts to bfloat16
    # truncate: bfloat16 is multiplied in float32 there.
    widened = x.device.type == "cpu" and x.dtype == torch.bfloat16
    return options | {
        "BATCH": batch,
        "TOKENS": padded_tokens(batch),
        "WIDENED": widened,
        "WORDS": _loads_words(x, weight, tile),
        "num_stages": tile.num_stages,
    }


def _loads_words(x: torch.Tensor, weight: WeightMatrix, tile: Tile) -> bool:
    """Whether a batched product loads its weights as words of four elements.

    It does where the tensor cores take a tile of narrow weights from registers (wgmma: 64 rows and
    four warps, compute capability 9.0). Older ones take it in a layout that words do not have, so
    that Triton passes the converted elements through shared memory again.
    """
    return (
        weight.data.element_size() == 1
        and x.dtype != torch.float32
        and weight.columns % 16 == 0
        and tile.rows >= 64
        and tile.num_warps >= 4
        and (not x.is_cuda or torch.cuda.get_device_capability(x.device) >= (9, 0))
    )
