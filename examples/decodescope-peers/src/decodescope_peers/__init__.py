"""Decode steps of other projects as variants, and what has to be installed for each.

decodescope loads this module to list the variants, so it imports neither torch nor a peer: `build`
imports what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.registry import Variant

if TYPE_CHECKING:
    from decodescope.variants.model.loading import LoadedModel
    from decodescope.variants.model.workload import DecodeWorkload
    from decodescope.variants.steps.decode_step import DecodeStep
    from decodescope_peers.torchao import TorchaoFormat


def _missing_package(module: str, package: str) -> str | None:
    return None if find_spec(module) else f"needs {package}: pip install {package}"


def _missing_gpt_fast() -> str | None:
    """gpt-fast is no package: its modules `model` and `generate` lie beside each other."""
    found = find_spec("model")
    if found is not None and found.origin and Path(found.origin).with_name("generate.py").is_file():
        return None
    return "needs a checkout of github.com/meta-pytorch/gpt-fast on PYTHONPATH"


def _missing_gpt_fast_int4() -> str | None:
    if (reason := _missing_gpt_fast()) is not None:
        return reason
    needed = [name for name in ("sentencepiece", "tiktoken") if find_spec(name) is None]
    # gpt-fast's quantize.py imports its tokenizer.
    return f"needs {' and '.join(needed)}: pip install {' '.join(needed)}" if needed else None


def _only_llama(
    variant: str, name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str
) -> None:
    if (model_type := config.get("model_type")) != "llama":
        raise ModelError(
            f"variant {variant}: {name} is no Llama but {model_type}; choose another variant"
        )


def _only_bf16(
    variant: str, name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str
) -> None:
    """PyTorch's product with INT4 weights, `_weight_int4pack_mm`, has no other activations."""
    if workload.dtype != "bf16":
        raise ModelError(
            f"variant {variant}: its INT4 weights multiply bf16, not {workload.dtype}; "
            "run it with --dtype bf16"
        )


def _only_bf16_llama(
    variant: str, name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str
) -> None:
    _only_llama(variant, name, config, workload, device)
    _only_bf16(variant, name, config, workload, device)


def _build_torchao(
    format: TorchaoFormat, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> DecodeStep:
    from decodescope_peers.torchao import build_torchao

    return build_torchao(format, loaded, workload, device)


def _build_gpt_fast(
    loaded: LoadedModel, workload: DecodeWorkload, device: str, int4: bool = False
) -> DecodeStep:
    from decodescope_peers.gpt_fast import build_gpt_fast

    return build_gpt_fast(loaded, workload, int4)


def _build_liger(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    from decodescope_peers.liger import build_liger

    return build_liger(loaded, workload)


_missing_torchao = partial(_missing_package, "torchao", "torchao")

TORCHAO_FP8 = Variant(
    name="torchao-fp8",
    summary="transformers with StaticCache, torchao's FP8 (E4M3) weights and torch.compile",
    requires_cuda=True,
    build=partial(_build_torchao, "fp8_e4m3"),
    missing=_missing_torchao,
)
TORCHAO_INT4 = Variant(
    name="torchao-int4",
    summary="transformers with StaticCache, torchao's INT4 weights (128 columns) and torch.compile",
    requires_cuda=True,
    build=partial(_build_torchao, "int4"),
    check=partial(_only_bf16, "torchao-int4"),
    missing=_missing_torchao,
)
TORCHAO_INT8 = Variant(
    name="torchao-int8",
    summary="transformers with StaticCache, torchao's INT8 weights and torch.compile",
    requires_cuda=True,
    build=partial(_build_torchao, "int8"),
    missing=_missing_torchao,
)
GPT_FAST = Variant(
    name="gpt-fast",
    summary="gpt-fast's Llama with its static cache and torch.compile, on the same weights",
    requires_cuda=True,
    build=_build_gpt_fast,
    check=partial(_only_llama, "gpt-fast"),
    missing=_missing_gpt_fast,
)
GPT_FAST_INT4 = Variant(
    name="gpt-fast-int4",
    summary="gpt-fast's Llama with INT4 weights in groups of 128, rounded by its quantize.py",
    requires_cuda=True,
    build=partial(_build_gpt_fast, int4=True),
    check=partial(_only_bf16_llama, "gpt-fast-int4"),
    missing=_missing_gpt_fast_int4,
)
LIGER = Variant(
    name="liger",
    summary="transformers with DynamicCache and Liger-Kernel's norms, SwiGLU and RoPE (Llama only)",
    requires_cuda=True,
    build=_build_liger,
    check=partial(_only_llama, "liger"),
    missing=partial(_missing_package, "liger_kernel", "liger-kernel"),
)
