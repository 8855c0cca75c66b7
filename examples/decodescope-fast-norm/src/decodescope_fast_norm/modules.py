"""The kernel as a module of a transformers model, in place of each RMSNorm."""

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope_fast_norm.rms_norm import rms_norm, rms_norm_reference

# More than bf16 rounds off, less than any other norm differs.
_TOLERANCE = 0.02


class FastRMSNorm(nn.Module):
    """`rms_norm` with the weight of the module that it replaces."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., features], and the same out."""
        return rms_norm(x, self.weight, self.eps)


def with_fast_norms(loaded: LoadedModel) -> LoadedModel:
    """The model with every RMSNorm replaced, on the same weights; `loaded` itself stays as it is.

    Raises:
        ModelError: no RMSNorm, or one with another formula, as Gemma's 1 + weight.
    """
    own = loaded.with_own_modules()
    norms = [
        (path, module)
        for path, module in own.model.named_modules()
        if type(module).__name__.endswith("RMSNorm")
    ]
    if not norms:
        raise ModelError(f"variant fast-norm: {loaded.name} has no RMSNorm; choose another variant")
    for path, module in norms:
        own.model.set_submodule(path, _fast(f"{path} of {loaded.name}", module))
    return own


@torch.no_grad()
def _fast(where: str, module: nn.Module) -> FastRMSNorm:
    """The module that computes what `module` does; a row of numbers shows whether it does."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if isinstance(weight, nn.Parameter) and weight.dim() == 1 and isinstance(eps, float):
        x = torch.linspace(-1, 1, len(weight), dtype=weight.dtype, device=weight.device)
        expected = rms_norm_reference(x, weight, eps)
        if torch.allclose(module(x).double(), expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            return FastRMSNorm(weight, eps)
    raise ModelError(
        f"variant fast-norm: {where} ({type(module).__name__}) is not "
        "x / sqrt(mean(x^2) + eps) * weight; choose another variant"
    )
