"""The families of models that the fused kernels run: a file each, which reads its layers."""

from collections.abc import Mapping

from decodescope.variants.steps.fused.families import llama, mixtures, phi3, smollm3
from decodescope.variants.steps.fused.families.family import Family

FAMILIES: Mapping[str, Family] = {
    "llama": llama.LLAMA,
    "mistral": llama.MISTRAL,
    "mixtral": mixtures.MIXTRAL,
    "phi3": phi3.PHI3,
    "qwen2": llama.QWEN,
    "qwen3": llama.QWEN,
    "qwen3_moe": mixtures.QWEN3_MOE,
    "smollm3": smollm3.SMOLLM3,
}
