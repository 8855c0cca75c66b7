"""The variant `fast-norm`: `eager` with every RMSNorm in one launch of this package's kernel.

decodescope loads this module to list the variants, so it imports neither torch nor Triton: `build`
imports what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.registry import Variant

if TYPE_CHECKING:
    from decodescope.variants.model.loading import LoadedModel
    from decodescope.variants.model.workload import DecodeWorkload
    from decodescope.variants.steps.decode_step import DecodeStep


def build(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    """The step of `eager`, on the same weights, with this package's norms.

    Raises:
        ModelError: as `with_fast_norms`.
    """
    from decodescope.variants.steps.eager_step import EagerStep
    from decodescope_fast_norm.modules import with_fast_norms

    return EagerStep(with_fast_norms(loaded), workload)


def check(name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str) -> None:
    """Refuse a model without RMSNorm before its weights are loaded.

    Raises:
        ModelError: config.json has no `rms_norm_eps`.
    """
    if "rms_norm_eps" not in config:
        raise ModelError(
            f"variant fast-norm: {name} has no RMSNorm (no rms_norm_eps in its config.json); "
            "choose another variant"
        )


VARIANT = Variant(
    name="fast-norm",
    summary="eager with every RMSNorm in one launch of our own Triton kernel",
    requires_cuda=True,
    build=build,
    check=check,
    interpretable=True,
)
