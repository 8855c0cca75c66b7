"""Whether a checkpoint is what its config.json says, and a model that can be decoded.

transformers fills in what a checkpoint lacks with random values, so an incomplete one would decode
different text in every run.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from transformers import DynamicCache

from decodescope.analyzer.errors import ModelError, first_line
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model.weight_files import StoredTensor

UNEXPECTED_WEIGHTS = "unexpected_weights"
_NAMED = 3
_CHECKED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def require_shapes(name: str, skeleton: Any, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare the tensors of a checkpoint with those of the model that config.json describes.

    `skeleton` is that model without memory. Only equal names are compared: transformers renames
    some tensors.

    Raises:
        ModelError: a tensor has another shape; names the first few.
    """
    expected = {key: tuple(value.shape) for key, value in skeleton.state_dict().items()}
    stored = {key: tensor.shape for key, tensor in tensors.items()}
    wrong = [
        f"{key} is {list(stored[key])} in the weights and {list(shape)} by config.json"
        for key, shape in expected.items()
        if key in stored and math.prod(stored[key]) != math.prod(shape)
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ModelError(
            f"{name}: config.json and the weights are of different models: {wrong[0]}{more}; use "
            "the files of one checkpoint"
        )


def require_complete(name: str, info: Mapping[str, Collection[Any]]) -> tuple[Finding, ...]:
    """Check the `loading_info` of transformers, which leaves out tied tensors and those that the
    architecture ignores; returns a finding if the checkpoint has tensors that nothing uses.

    Raises:
        ModelError: tensors are missing or have another shape; names the first few.
    """
    if mismatched := sorted(str(entry[0]) for entry in info["mismatched_keys"]):
        raise ModelError(
            f"{name}: config.json and the weights are of different models: the shape differs in "
            f"{_count(mismatched)}, {_first(mismatched)}; use the files of one checkpoint"
        )
    if missing := sorted(info["missing_keys"]):
        raise ModelError(
            f"{name}: the checkpoint lacks {_count(missing)} of the model: {_first(missing)}; "
            "download or save it again"
        )
    unexpected = sorted(info["unexpected_keys"])
    if not unexpected:
        return ()
    message = (
        f"the checkpoint has {_count(unexpected)} that the model does not use: {_first(unexpected)}"
    )
    return (Finding(UNEXPECTED_WEIGHTS, message),)


@torch.no_grad()
def require_finite(name: str, model: Any) -> None:
    """Check that every weight is a finite number; reads each once, on its device.

    Raises:
        ModelError: a NaN or infinite weight; names the first few tensors.
    """
    checked = {
        key: weight
        for key, weight in model.named_parameters()
        if weight.dtype in _CHECKED_DTYPES and weight.numel()
    }
    # The smallest and largest element are NaN if any is.
    bounds = [torch.stack(weight.aminmax()).isfinite().all() for weight in checked.values()]
    finite = torch.stack(bounds).tolist() if bounds else []
    broken = [key for key, fine in zip(checked, finite, strict=True) if not fine]
    if broken:
        raise ModelError(
            f"{name}: NaN or infinite values in {_count(broken)} as {_dtype(model)}: "
            f"{_first(broken)}; choose another --dtype, or download the checkpoint again"
        )


def require_kv_cache(name: str, skeleton: Any) -> None:
    """Refuse architectures that keep a recurrent state: no step of them can be repeated.

    Raises:
        ModelError: `skeleton`, which may be without memory, is one of them.
    """
    if getattr(skeleton, "_is_stateful", False):
        raise _not_decoded(name, skeleton, "keeps a recurrent state")


@torch.no_grad()
def require_decoding(name: str, model: Any) -> None:
    """Decode two tokens, to see that the model keeps K and V and gives finite logits.

    Raises:
        ModelError: it does not; says what a model must have.
        torch.OutOfMemoryError: GPU memory ran out.
    """
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    cache = DynamicCache(config=model.config)
    try:
        for _ in range(2):
            output = model(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        kept, shape = cache.get_seq_length(), tuple(output.logits.shape[:2])
        # Masked logits are minus infinity.
        usable = bool((output.logits < math.inf).all())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the model's own code, from transformers or the checkpoint
        raise _not_decoded(name, model, f"fails ({first_line(error)})") from error
    if kept != 2 or shape != (1, 1):
        raise _not_decoded(name, model, "keeps no K and V of earlier tokens")
    if not usable:
        raise ModelError(
            f"{name}: its logits are NaN or infinite in {_dtype(model)}; choose another --dtype, "
            "or download the checkpoint again"
        )


def _not_decoded(name: str, model: Any, why: str) -> ModelError:
    return ModelError(
        f"{name}: a model of type {model.config.model_type} {why}; only decoder-only language "
        "models with a KV cache can be decoded"
    )


def _count(names: Collection[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"


def _first(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _dtype(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")
