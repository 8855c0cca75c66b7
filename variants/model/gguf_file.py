"""The configuration and the tensors of a GGUF file, as transformers' reader maps them.

transformers would dequantise the whole file to float32 at once. Here its mapping of names and of
config.json is used, and single tensors are read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decodescope.analyzer.errors import DecodescopeError, MissingRequirement, ModelError, first_line
from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.experts import StoredNames
from decodescope.variants.model.grouped.gguf import dequantised
from decodescope.variants.parallel.cuts import Sliceable

# llama.cpp's divisors of the frequencies of Llama 3, which transformers' reader leaves out.
ROPE_FACTORS = "rope_freqs.weight"
# The size of heads, which transformers' reader leaves out for most architectures.
_HEADS, _KEY = "heads", "attention.key_length"
_OF_HEADS = ("attention.value_length", "rope.dimension_count")
# Elements that are dequantised at once, in float32.
_BLOCK = 1 << 23
_UNQUANTISED = ("F32", "F16")
# Of the processors of transformers, those that keep a tensor one tensor, with its rows whole.
_PROCESSORS = ("TensorProcessor", "LlamaTensorProcessor", "Gemma2TensorProcessor")


@dataclass(frozen=True, slots=True)
class GgufTensor(StoredTensor):
    """`dtype` is ggml's name of its type ("Q4_0"); `values` reads its numbers, or its blocks as
    uint8 [rows, bytes], with rows in transformers' order."""

    values: Callable[[], np.ndarray[Any, Any]]


def gguf_config(path: Path) -> dict[str, object]:
    """The config.json that transformers makes of the file's metadata.

    Raises:
        MissingRequirement: the package gguf is not installed.
        ModelError: not a whole GGUF file, or of an architecture that transformers does not read.
    """
    if find_spec("gguf") is None:
        raise MissingRequirement(f"{path}: GGUF files need the package gguf: pip install gguf")
    from transformers.modeling_gguf_pytorch_utils import (
        GGUF_TO_TRANSFORMERS_MAPPING,
        load_gguf_checkpoint,
    )

    # A part of its own of what the reader returns: opening the file again takes seconds.
    GGUF_TO_TRANSFORMERS_MAPPING[_HEADS] = {
        architecture: {name: name for name in (_KEY, *_OF_HEADS)}
        for architecture, names in GGUF_TO_TRANSFORMERS_MAPPING["config"].items()
        if _KEY not in names
    }
    with _whole(path):
        read = load_gguf_checkpoint(str(path))
        config: dict[str, object] = read["config"]
        if size := read[_HEADS].pop(_KEY, None):
            for name, other in read[_HEADS].items():
                if other != size:
                    raise ModelError(
                        f"{path}: {_KEY} is {size} and {name} {other} in its metadata; only heads "
                        "of one size, rotated whole, are read; use its safetensors checkpoint"
                    )
            config["head_dim"] = size
    return config


def gguf_tensors(path: Path, skeleton: Any) -> dict[str, StoredTensor]:
    """Every tensor of the file, by its name in the model `skeleton`; those that the model lacks by
    their own. The file is opened once: parsing a large vocabulary takes seconds. Raises as
    `gguf_config`."""
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    def values(tensor: Any) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = processor.process(
            weights=tensor.data, name=tensor.name
        ).weights
        return made

    with _whole(path):
        reader, processor = _opened(path, skeleton.config)
        names = get_gguf_hf_weights_map(skeleton, processor)
        return {
            names.get(tensor.name, tensor.name): GgufTensor(
                path,
                tensor.name,
                tensor.tensor_type.name,
                tuple(int(size) for size in reversed(tensor.shape)),
                partial(values, tensor),
            )
            for tensor in reader.tensors
        }


class GgufReader:
    """Reads tensors of a GGUF file onto `device`."""

    def __init__(self, tensors: Mapping[str, StoredTensor], device: str) -> None:
        self._tensors = tensors
        self._device = device

    def read(
        self,
        key: StoredNames,
        dtype: torch.dtype | None = None,
        part: Callable[[Sliceable], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The tensor `key` in `dtype`, or the `part` that it takes; without a `dtype` its blocks,
        uint8 [rows, bytes]."""
        whole = self._whole_tensor(key, dtype)
        return whole if part is None else part(whole)

    def _whole_tensor(self, key: StoredNames, dtype: torch.dtype | None) -> torch.Tensor:
        assert isinstance(key, str)
        described = self._tensors[key]
        assert isinstance(described, GgufTensor)
        values = described.values()
        if dtype is None or described.dtype in _UNQUANTISED:
            return torch.from_numpy(np.array(values)).to(self._device, dtype)
        values = values.reshape(-1, values.shape[-1])
        columns = described.shape[-1]
        made = torch.empty(len(values), columns, dtype=dtype, device=self._device)
        step = max(1, _BLOCK // columns)
        for first in range(0, len(values), step):
            block = slice(first, first + step)
            made[block] = dequantised(values[block], described.dtype).to(self._device)
        return made.view(described.shape)


def has_rope_factors(model: Any, tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether the frequencies of `model`, which are fixed, have divisors in the file."""
    rotary: Any = getattr(model.model, "rotary_emb", None)
    if ROPE_FACTORS not in tensors or getattr(rotary, "rope_type", None) != "default":
        return False
    return tensors[ROPE_FACTORS].shape == tuple(rotary.inv_freq.shape)


def _opened(path: Path, config: Any) -> tuple[Any, Any]:
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        read_field,
    )

    reader = GGUFReader(path)
    architecture = read_field(reader, "general.architecture")[0]
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    if processor.__name__ not in _PROCESSORS:
        raise ModelError(
            f"{path}: GGUF files of the architecture {architecture} are not read; use its "
            "safetensors checkpoint"
        )
    return reader, processor(config=config.to_dict())


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (DecodescopeError, MemoryError):
        raise
    except Exception as error:  # numpy and gguf raise nearly every type for a broken file
        raise ModelError(
            f"{path}: not a GGUF file that transformers reads ({first_line(error)}); download or "
            "copy it again"
        ) from error
