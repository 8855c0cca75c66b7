"""The narrow format of a variant's weights, and a matrix in it."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import PACKED_FORMATS, PackedFormat, Packing, packing_of
from decodescope.kernels.host.weights import NARROW_DTYPES, ByteFormat, NarrowFormat, quantized_rows
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec

# The element type or the format of 4 bits, and whether rows have scales.
Stored = tuple[torch.dtype | PackedFormat, bool]
# Elements that are quantised at once: `quantized_rows` takes 8 bytes of memory for each.
_BLOCK = 1 << 23


@dataclass(frozen=True, slots=True)
class Quantization:
    """The weights of a narrow format: the matrices of the layers, experts included, lm_head with
    `head`, and the embedding table with `embedding`. Without `scaled` every scale is 1."""

    format: NarrowFormat
    scaled: bool = True
    head: bool = True
    embedding: bool = False

    @property
    def stored(self) -> Stored:
        for name, packed_format in PACKED_FORMATS.items():
            if name == self.format:
                return packed_format, packed_format.row_scaled
        return NARROW_DTYPES[cast(ByteFormat, self.format)], self.scaled

    def packing(self, columns: int) -> Packing | None:
        """That of a matrix of so many columns; None of 8 bits."""
        return packing_of(self.format, columns)


def quantization_of(spec: VariantSpec | None) -> Quantization | None:
    """The narrow format in which a variant stores weights; None: as they were loaded."""
    if spec is None or spec.weight_format not in NARROW_WEIGHTS:
        return None
    weights = NARROW_WEIGHTS[spec.weight_format]
    return Quantization(weights.elements, weights.scaled, not spec.head16, spec.embedding8)


def narrowed(
    weight: torch.Tensor, quantization: Quantization, where: str, in_part: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Elements and scales of `weight` [..., rows, columns], made a block of rows at a time. If
    ranks hold parts of its rows, scales are those of whole rows."""
    matrix = weight.flatten(0, -2)
    rows, columns = matrix.shape
    form, scaled_rows = quantization.stored
    packing = quantization.packing(columns)
    if in_part and packing is not None and columns % (packing.format.group or columns + 1):
        raise ModelError(
            f"{where}: {columns} columns a rank are not whole groups of {packing.format}; choose "
            "another --tp, or a format of 8 bits"
        )
    largest = _largest_of_ranks(matrix) if in_part and not weight.is_meta else None
    width = columns if packing is None else packing.width
    dtype = form if isinstance(form, torch.dtype) else torch.int32
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
                f"cannot be stored in {quantization.format}; download the checkpoint again"
            )
        try:
            data[block], scales = quantized_rows(
                rows_of,
                quantization.format,
                quantization.scaled,
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
