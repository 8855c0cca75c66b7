"""The formats of weights and KV cache that the names of kernels show."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from decodescope.analyzer.modelling.weight_formats import WeightFormat, weight_format
from decodescope.analyzer.modelling.weights import PART_OF_ROLE, Weights

# Of several formats of the same width, the one with the fewest bytes: what a guess reads must not
# be more than what the step reads.
_FORMATS = (
    ("int4", re.compile(r"(?i:fp4|e2m1|int4|w4a|a4w4|awq|gptq|marlin|machete|4bit|nf4)")),
    ("fp8", re.compile(r"(?i:fp8|float8|e4m3|e5m2|w8a|a8w8|int8|imma)|_F8|_I8|nvjet_\w*?qq")),
)
# vLLM's kernels name the enumeration of its cache formats, 0 being that of the model's dtype.
_KV_OF_8_BITS = re.compile(
    r"(?i:fp8(?!KVCacheDataType\)?0)|float8|e4m3|e5m2|int8|unsigned char|uint8)"
)


def shown_format(names: Collection[str]) -> WeightFormat | None:
    """The narrowest format that names of kernels of products show, None if they show none."""
    for name, pattern in _FORMATS:
        if any(map(pattern.search, names)):
            return weight_format(name)
    return None


def narrowed(
    weights: Weights, kernels: Mapping[str, Collection[str]], element_bytes: int | None = None
) -> tuple[Weights, str | None]:
    """The formats of a model where those that its kernels show are no narrower, and in words what
    was changed, None for nothing. `kernels` holds the names of each role's kernels, `element_bytes`
    is the least that its products' shapes show for the weights."""
    changed = []
    for part in dict.fromkeys(PART_OF_ROLE.values()):
        names = [
            name for role in kernels if PART_OF_ROLE.get(role) == part for name in kernels[role]
        ]
        shown = shown_format(names)
        if shown is None and element_bytes == 1 and part != "head":
            shown = weight_format("fp8")
        if shown is not None and shown.bits < weights.of(part).bits:
            weights = weights.with_parts((part,), shown)
            changed.append(f"{part}={shown.name}")
    cache_names = [*kernels.get("kv_write", ()), *kernels.get("attention", ())]
    if weights.kv_element_bytes > 1 and any(map(_KV_OF_8_BITS.search, cache_names)):
        weights = replace(weights, kv_element_bytes=1)
        changed.append("kv=fp8")
    return weights, ",".join(changed) or None
