"""The families of models that the fused kernels run: a file each, which reads its layers."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from decodescope.variants.steps.fused.families.family import Family


@cache
def families() -> Mapping[str, Family]:
    """The families by the `model_type` of config.json: `FAMILIES` of every module of this package,
    so that a new file is all that another family needs."""
    found: dict[str, Family] = {}
    for module in iter_modules(__path__):
        if module.name != "family":
            found |= import_module(f"{__name__}.{module.name}").FAMILIES
    return dict(sorted(found.items()))
