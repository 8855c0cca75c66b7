"""Liger-Kernel's operators in transformers' Llama, launched one by one.

torch.compile cannot trace them in one graph (Liger 0.8.5 asks Triton for its settings inside), so
there is no compiled step with them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.eager_step import EagerStep

_ROTATION = "apply_rotary_pos_emb"


def build_liger(loaded: LoadedModel, workload: DecodeWorkload) -> "LigerStep":
    """`eager` on a Llama with the operators of `apply_liger_kernel_to_llama`, on its weights."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama  # type: ignore[import-not-found]
    from transformers.models.llama import modeling_llama

    own = loaded.with_own_modules()
    # Liger also replaces classes and functions of transformers' module, which every model shares.
    with _restored(modeling_llama):
        apply_liger_kernel_to_llama(fused_linear_cross_entropy=False, model=own.model)
        rotation = getattr(modeling_llama, _ROTATION)
    return LigerStep(own, workload, modeling_llama, rotation)


class LigerStep(EagerStep):
    """A `DecodeStep` that rotates with `rotation`, which is in `module` only while it computes."""

    def __init__(
        self, loaded: LoadedModel, workload: DecodeWorkload, module: Any, rotation: Any
    ) -> None:
        super().__init__(loaded, workload)
        self._module, self._rotation = module, rotation

    def _forward(self, ids: torch.Tensor, cache: Any) -> torch.Tensor:
        with _restored(self._module):
            setattr(self._module, _ROTATION, self._rotation)
            return super()._forward(ids, cache)


@contextmanager
def _restored(module: Any) -> Iterator[None]:
    """Give the module's attributes their values back."""
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)
