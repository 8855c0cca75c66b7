"""Reads single tensors of a checkpoint."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from decodescope.variants.model.checkpoint import StoredTensor


class TensorReader(ExitStack):
    """Reads tensors of a checkpoint onto `device`; its files stay open until the end."""

    def __init__(self, tensors: Mapping[str, StoredTensor], device: str) -> None:
        super().__init__()
        self._tensors = tensors
        self._device = device
        self._files: dict[Path, Any] = {}

    def read(self, key: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The tensor `key`, cast to `dtype`, in memory of its own."""
        path = self._tensors[key].file
        if path not in self._files:
            self._files[path] = self.enter_context(safe_open(path, framework="pt"))
        tensor: torch.Tensor = self._files[path].get_tensor(key)
        # The tensor is a part of the mapped file.
        return tensor.to(self._device, dtype or tensor.dtype, copy=True)
