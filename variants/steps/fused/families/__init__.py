"""The families of models that the fused kernels run: a file each, which reads its layers."""

from collections.abc import Mapping

from decodescope.variants.steps.fused.families import (
    cohere2,
    gemma,
    glm,
    gpt_oss,
    granite,
    llama,
    mixtures,
    olmo,
    phi3,
    smollm3,
)
from decodescope.variants.steps.fused.families.family import Family

FAMILIES: Mapping[str, Family] = {
    "cohere2": cohere2.COHERE2,
    "gemma2": gemma.GEMMA2,
    "gemma3_text": gemma.GEMMA3,
    "glm": glm.GLM,
    "glm4": glm.GLM,
    "gpt_oss": gpt_oss.GPT_OSS,
    "granite": granite.GRANITE,
    "llama": llama.LLAMA,
    "mistral": llama.MISTRAL,
    "mixtral": mixtures.MIXTRAL,
    "olmo2": olmo.OLMO2,
    "olmo3": olmo.OLMO3,
    "phi3": phi3.PHI3,
    "qwen2": llama.QWEN,
    "qwen3": llama.QWEN,
    "qwen3_moe": mixtures.QWEN3_MOE,
    "smollm3": smollm3.SMOLLM3,
}
