"""A matrix of 4 bits as a checkpoint stores it, and the words or weights that it becomes.

Codes and scales are moved, never rounded again. Scales of 16 bits become float16, times a power of
two for the row where float16 lacks such a scale or its weights. A matrix that the kernels' layouts
cannot hold is dequantised: to the model's dtype, in float32 and rounded once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packed import e8m0_values, packed, unpacked
from decodescope.kernels.host.packing import E8M0_BIAS, LARGEST_EXPONENT, Packing

Tensors = Mapping[str, torch.Tensor]

# Elements that are converted at once: `packed` takes about 30 bytes of memory for each.
_BLOCK = 1 << 20
# GPTQ and AWQ have eight rows in a word.
ROWS_OF_WORD = 8
MIDDLE = 8
# Codes times float16 scales below 2^11 have a float16, which batches make of them.
_LARGEST_FLOAT16 = 11


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a matrix: codes uint8 [rows, columns], 0 to 15; scales float32 [rows, groups]; zero
    points uint8 [rows, groups], None where all are 8; the rows' scales float32 [rows], None where
    all are 1."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None = None
    row_scale: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class GroupedMatrix(ABC):
    """The matrix of the nn.Linear `key`. `tensors` are its names in the checkpoint, of which
    `scale` is that of its scales, and `stored` says in words what it is. Without a `packing` it is
    dequantised, because of `reason`. `group` is the columns of a scale, and `group_of` int64
    [columns] their groups if they are not in order."""

    model: str
    key: str
    rows: int
    columns: int
    group: int
    tensors: tuple[str, ...]
    scale: str
    stored: str
    packing: Packing | None
    reason: str = ""
    group_of: torch.Tensor | None = None

    @abstractmethod
    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        """Some rows of its `tensors`.

        Raises:
            ModelError: values that are not what config.json says; names the tensor.
        """

    def weights(self, tensors: Tensors, rows: slice) -> torch.Tensor:
        """Some rows in float32. Raises as `_require_scales`."""
        groups = self.groups(tensors, rows)
        self._require_scales(groups, rows)
        return self._weights(groups)

    @property
    def blocks(self) -> Iterator[slice]:
        step = max(_BLOCK // self.columns // ROWS_OF_WORD, 1) * ROWS_OF_WORD
        for first in range(0, self.rows, step):
            yield slice(first, min(first + step, self.rows))

    def packed(
        self, tensors: Tensors, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Its words int32 [rows, width] and scales of rows, for the kernels and a model of `dtype`;
        None if they cannot hold its scales. Raises as `groups`, `_require_scales` and
        `_require_weights`."""
        packing = self.packing
        if packing is None:
            return None
        device = tensors[self.scale].device
        words = torch.empty(self.rows, packing.width, dtype=torch.int32, device=device)
        row_scale = torch.ones(self.rows, device=device)
        for block in self.blocks:
            groups = self.groups(tensors, block)
            self._require_scales(groups, block)
            self._require_weights(groups, block, dtype)
            scales, factor = _exact_scales(groups.scales, packing)
            if scales is None:
                return None
            row_scale[block] = factor if groups.row_scale is None else factor * groups.row_scale
            words[block] = _words(groups, scales, packing)
        needed = packing.format.row_scaled or bool((row_scale != 1).any())
        return words, row_scale if needed else None

    def dequantised(self, tensors: Tensors, dtype: torch.dtype) -> torch.Tensor:
        """Its weights in `dtype`. Raises as `weights`, and for a weight that `dtype` lacks."""
        device = tensors[self.scale].device
        made = torch.empty(self.rows, self.columns, dtype=dtype, device=device)
        for block in self.blocks:
            made[block] = weights = self.weights(tensors, block)
            self._require_finite(weights, block, dtype)
        return made

    def _require_scales(self, groups: Groups, block: slice) -> None:
        """Raise `ModelError` if a scale is no finite number; names tensor and row."""
        bad = ~groups.scales.isfinite().all(dim=1)
        if groups.row_scale is not None:
            bad |= ~groups.row_scale.isfinite()
        if bool(bad.any()):
            raise self.error(
                f"row {block.start + int(bad.nonzero()[0])} of {self.scale} has scales that are "
                "NaN or infinite; download or save the checkpoint again"
            )

    def _require_weights(self, groups: Groups, block: slice, dtype: torch.dtype) -> None:
        """Raise `ModelError` if a weight is no finite number in `dtype`; names matrix and row."""
        bound = groups.scales.abs().amax(dim=1) * 2 * MIDDLE
        if groups.row_scale is not None:
            bound = bound * groups.row_scale.abs()
        if not bool((bound <= torch.finfo(dtype).max).all()):
            self._require_finite(self._weights(groups), block, dtype)

    def _weights(self, groups: Groups) -> torch.Tensor:
        if self.packing is not None and self.packing.format.e2m1:
            words = _words(groups, groups.scales, self.packing)
            weights = unpacked(words, self.packing, torch.float32)
        else:
            group_of = self.group_of
            if group_of is None:
                group_of = torch.arange(self.columns) // self.group
            group_of = group_of.to(groups.codes.device)
            zeros = MIDDLE if groups.zeros is None else groups.zeros[:, group_of].float()
            weights = (groups.codes.float() - zeros) * groups.scales[:, group_of]
        return weights if groups.row_scale is None else weights * groups.row_scale[:, None]

    def _require_finite(self, weights: torch.Tensor, block: slice, dtype: torch.dtype) -> None:
        largest = weights.abs().amax(dim=1)
        bad = ~(largest <= torch.finfo(dtype).max)
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            raise self.error(
                f"row {block.start + row} of {self.key} holds {largest[row].item():g}, beyond "
                f"{str(dtype).removeprefix('torch.')} ({torch.finfo(dtype).max:g}); choose another "
                "--dtype, or download the checkpoint again"
            )

    def error(self, reason: str) -> ModelError:
        return ModelError(f"{self.model}: {reason}")


def _padded(values: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, columns - values.shape[1]))


def _words(groups: Groups, scales: torch.Tensor, packing: Packing) -> torch.Tensor:
    scales = _padded(scales, packing.groups)[..., None]
    if packing.format.scales == "fp16_zero":
        assert groups.zeros is not None
        scales = torch.cat((scales, _padded(groups.zeros, packing.groups)[..., None]), dim=2)
    return packed(_padded(groups.codes, packing.padded), scales, packing)


def _exact_scales(
    scales: torch.Tensor, packing: Packing
) -> tuple[torch.Tensor | None, torch.Tensor | float]:
    """The scales as the packing stores them, and by what each row is multiplied; None if the
    packing has no such numbers."""
    if packing.format.scales == "e8m0":
        return (scales if bool((scales <= 2.0**LARGEST_EXPONENT).all()) else None), 1.0
    largest = scales.abs().amax(dim=1)
    fit = bool((largest < 2.0**_LARGEST_FLOAT16).all())
    if packing.format.scales == "e4m3" or (fit and torch.equal(scales.half().float(), scales)):
        return scales, 1.0
    exponent = torch.frexp(largest).exponent - _LARGEST_FLOAT16
    factor = e8m0_values((exponent.clamp(min=1 - E8M0_BIAS) + E8M0_BIAS).to(torch.uint8))
    divided = scales / factor[:, None]
    exact = torch.equal(divided.half().float() * factor[:, None], scales)
    return (divided if exact else None), factor


def nibbles(words: torch.Tensor) -> torch.Tensor:
    """The eight codes of each word int32 [..., words], lowest bits first: uint8 [..., 8 words]."""
    stored = words.contiguous().view(torch.uint8)
    return torch.stack((stored & 15, stored >> 4), dim=-1).flatten(-2)
