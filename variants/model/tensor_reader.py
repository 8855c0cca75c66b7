"""Reads single tensors of a checkpoint, or parts of them."""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.experts import StoredNames
from decodescope.variants.parallel.cuts import Sliceable

# Elements of a tensor that are compared with those of another at a time.
_COMPARED = 1 << 24


class TensorReader(ExitStack):
    """Reads tensors of a checkpoint onto `device`; its files stay open until the end."""

    def __init__(self, tensors: Mapping[str, StoredTensor], device: str) -> None:
        super().__init__()
        self._tensors = tensors
        self._device = device
        self._files: dict[Path, Any] = {}

    def read(
        self,
        names: StoredNames,
        dtype: torch.dtype | None = None,
        part: Callable[[Sliceable], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The tensor of this name, or the `part` that it takes, cast to `dtype`, in memory of its
        own. Of matrices of experts, those of one are below each other, [experts, rows, columns].
        """
        if isinstance(names, str):
            file, stored = self._file(names), self._tensors[names].name
            tensor = file.get_tensor(stored) if part is None else part(file.get_slice(stored))
        else:
            stacked = _Stacked([[self._slice(key) for key in each] for each in names])
            tensor = stacked[:] if part is None else part(stacked)
        # The tensor may be a part of the mapped file.
        return tensor.to(self._device, dtype or tensor.dtype, copy=True)

    def equal(self, name: str, other: str, dtype: torch.dtype) -> bool:
        """Whether two tensors are equal as `dtype`; reads a few rows of both at a time."""
        shape = self._tensors[name].shape
        if shape != self._tensors[other].shape:
            return False
        rows = max(1, _COMPARED // max(1, math.prod(shape[1:])))
        parts = (itemgetter(slice(row, row + rows)) for row in range(0, shape[0], rows))
        return all(
            torch.equal(self.read(name, dtype, part), self.read(other, dtype, part))
            for part in parts
        )

    def _slice(self, key: str) -> Any:
        return self._file(key).get_slice(self._tensors[key].name)

    def _file(self, key: str) -> Any:
        path = self._tensors[key].file
        if path not in self._files:
            self._files[path] = self.enter_context(safe_open(path, framework="pt"))
        return self._files[path]


class _Stacked:
    """Matrices of experts as one tensor, of which only the indexed part is read."""

    def __init__(self, matrices: list[list[Any]]) -> None:
        self._matrices = matrices

    def __getitem__(self, index: slice | tuple[slice, ...]) -> torch.Tensor:
        given = index if isinstance(index, tuple) else (index,)
        experts, rows, columns = (*given, slice(None), slice(None))[:3]
        return torch.stack([_rows(each, rows, columns) for each in self._matrices[experts]])


def _rows(matrices: list[Any], rows: slice, columns: slice) -> torch.Tensor:
    """The `rows` of matrices that are below each other."""
    parts, above = [], 0
    for matrix in matrices:
        height = matrix.get_shape()[0]
        first = max(0, (rows.start or 0) - above)
        last = height if rows.stop is None else min(height, rows.stop - above)
        if first < last:
            parts.append(matrix[first:last, columns])
        above += height
    return torch.cat(parts)
