"""Makes a matrix one of 8 or 4 bits, a block of rows at a time."""

from typing import cast

import torch
import torch.distributed as dist

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import packing_of
from decodescope.kernels.host.weights import NARROW_DTYPES, ByteFormat, NarrowFormat, quantized_rows

# Elements that are quantised at once: `quantized_rows` takes 8 bytes of memory for each.
_BLOCK = 1 << 23


def narrowed(
    weight: torch.Tensor, format: NarrowFormat, scaled: bool, where: str, in_part: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Elements and scales of `weight` [..., rows, columns], made a block of rows at a time. If
    ranks hold parts of its rows, scales are those of whole rows."""
    matrix = weight.flatten(0, -2)
    rows, columns = matrix.shape
    packing = packing_of(format, columns)
    scaled_rows = scaled if packing is None else packing.format.row_scaled
    if in_part and packing is not None and columns % (packing.format.group or columns + 1):
        raise ModelError(
            f"{where}: {columns} columns a rank are not whole groups of {packing.format}; choose "
            "another --tp, or a format of 8 bits"
        )
    largest = _largest_of_ranks(matrix) if in_part and not weight.is_meta else None
    width = columns if packing is None else packing.width
    dtype = torch.int32 if packing is not None else NARROW_DTYPES[cast(ByteFormat, format)]
    data = matrix.new_empty((rows, width), dtype=dtype)
    scale = torch.empty(rows, dtype=torch.float32, device=weight.device)
    step = max(1, _BLOCK // columns)
    # A model without memory has no values.
    for first in range(0, 0 if weight.is_meta else rows, step):
        block = slice(first, first + step)
        rows_of = matrix[block]
        broken = ~rows_of.isfinite().all(dim=1)
        if bool(broken.any()):
            raise ModelError(
                f"{where}: row {first + int(broken.nonzero()[0])} has NaN or infinite values and "
                f"cannot be stored in {format}; download the checkpoint again"
            )
        try:
            data[block], scales = quantized_rows(
                rows_of,
                format,
                scaled,
                None if largest is None else largest[block],
            )
        except ValueError as error:
            raise ModelError(
                f"{where}: from row {first} on, {error}; choose a format of 8 bits"
            ) from error
        if scales is not None:
            scale[block] = scales
    shape = weight.shape[:-1]
    return data.view(*shape, width), scale.view(shape) if scaled_rows else None


def _largest_of_ranks(matrix: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each row, of which every rank holds other columns; float32."""
    low, high = matrix.aminmax(dim=1)
    largest = torch.maximum(high, -low).float()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest
