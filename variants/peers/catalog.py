"""The third-party peers: what each is, and what has to be installed for it.

Importing this module loads neither torch nor a peer: builders import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.spec import WeightFormat

if TYPE_CHECKING:
    from decodescope.variants.model.loading import LoadedModel
    from decodescope.variants.model.workload import DecodeWorkload
    from decodescope.variants.steps.decode_step import DecodeStep


@dataclass(frozen=True, slots=True)
class Peer:
    """Another project's decode step as a variant.

    `missing()` says what has to be installed for it, None if nothing. `build(loaded, workload,
    device)` returns the step, and raises a `DecodescopeError` for a model that the peer cannot run;
    `check`, as that of a `Variant`, refuses one before its weights are loaded. The step quantises
    weights to `weight_format` in modules of its own, if that is not None.
    """

    name: str
    summary: str
    missing: Callable[[], str | None]
    build: Callable[[LoadedModel, DecodeWorkload, str], DecodeStep]
    check: Callable[[str, Mapping[str, object], DecodeWorkload, str], None] | None = None
    weight_format: WeightFormat | None = None


def _missing_package(module: str, package: str) -> str | None:
    return None if find_spec(module) else f"needs {package}: pip install {package}"


def _missing_gpt_fast() -> str | None:
    """gpt-fast is no package: its modules `model` and `generate` lie beside each other."""
    found = find_spec("model")
    if found is not None and found.origin and Path(found.origin).with_name("generate.py").is_file():
        return None
    return "needs a checkout of github.com/meta-pytorch/gpt-fast on PYTHONPATH"


def _only_llama(
    variant: str, name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str
) -> None:
    if (model_type := config.get("model_type")) != "llama":
        raise ModelError(
            f"variant {variant}: {name} is no Llama but {model_type}; choose another variant"
        )


def _build_torchao(
    format: WeightFormat, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> DecodeStep:
    from decodescope.variants.peers.torchao import build_torchao

    return build_torchao(format, loaded, workload, device)


def _build_gpt_fast(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    from decodescope.variants.peers.gpt_fast import build_gpt_fast

    return build_gpt_fast(loaded, workload)


def _build_liger(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    from decodescope.variants.peers.liger import build_liger

    return build_liger(loaded, workload)


_torchao = partial(_missing_package, "torchao", "torchao")

PEERS = (
    Peer(
        "torchao-fp8",
        "transformers with StaticCache, torchao's FP8 (E4M3) weights and torch.compile",
        _torchao,
        partial(_build_torchao, "fp8_e4m3"),
        weight_format="fp8_e4m3",
    ),
    Peer(
        "torchao-int8",
        "transformers with StaticCache, torchao's INT8 weights and torch.compile",
        _torchao,
        partial(_build_torchao, "int8"),
        weight_format="int8",
    ),
    Peer(
        "gpt-fast",
        "gpt-fast's Llama with its static cache and torch.compile, on the same weights",
        _missing_gpt_fast,
        _build_gpt_fast,
        partial(_only_llama, "gpt-fast"),
    ),
    Peer(
        "liger",
        "transformers with DynamicCache and Liger-Kernel's norms, SwiGLU and RoPE (Llama only)",
        partial(_missing_package, "liger_kernel", "liger-kernel"),
        _build_liger,
        partial(_only_llama, "liger"),
    ),
)


def peer_format(name: str) -> WeightFormat | None:
    """The narrow format in which the peer of this name stores weights, if there is one."""
    return next((peer.weight_format for peer in PEERS if peer.name == name), None)
