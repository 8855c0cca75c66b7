"""torchao's FP8, INT8 and INT4 weights under torch.compile."""

from collections.abc import Iterator
from typing import Any, Literal

import torch

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.steps.compiled_step import build_compiled
from decodescope.variants.steps.decode_step import DecodeStep

TorchaoFormat = Literal["fp8_e4m3", "int8", "int4"]
_CONFIGS: dict[TorchaoFormat, tuple[str, dict[str, Any]]] = {
    "fp8_e4m3": ("Float8WeightOnlyConfig", {}),
    "int8": ("Int8WeightOnlyConfig", {}),
    # The other packings need packages of kernels beside torchao.
    "int4": (
        "Int4WeightOnlyConfig",
        {"group_size": 128, "int4_packing_format": "tile_packed_to_4d"},
    ),
}


def build_torchao(
    format: TorchaoFormat, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> DecodeStep:
    """`compiled` on modules whose linear layers hold weights in `format` with a scale a row, of
    INT4 a scale and a zero point for 128 columns, as PyTorch's own kernel multiplies them.

    The model's own modules keep their weights. Inductor multiplies with the stored weights only
    where it may search its kernels' tiles; otherwise it first writes every matrix to memory in bf16
    (`decomposition.mm` in torch/_inductor). So the search is on, as in gpt-fast, for the rest of
    the process. torchao's own settings also search along every diagonal, which they do not need for
    this.

    Raises:
        MissingRequirement: `device` is not "cuda".
    """
    from torch._inductor import config as inductor_settings
    from torchao import quantization  # type: ignore[import-not-found]

    inductor_settings.coordinate_descent_tuning = True
    own = loaded.with_own_modules()
    name, options = _CONFIGS[format]
    config = getattr(quantization, name)(**options, set_inductor_config=False)
    quantization.quantize_(own.model, config)
    step = build_compiled(own, workload, device)
    step.weight_bytes_read = stored_bytes(own.model, workload.batch)
    return step


def stored_bytes(model: Any, batch: int) -> int:
    """Bytes of weights that a step reads, where torchao's tensors state the dtype that they stand
    for instead of the one that they store."""
    parameters: list[torch.Tensor] = list(model.parameters())
    stated = sum(parameter.nbytes for parameter in parameters)
    stored = sum(part.nbytes for parameter in parameters for part in _parts(parameter))
    return weight_bytes_read(model, batch) - stated + stored


def _parts(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a tensor subclass is made of; of any other tensor, itself."""
    if not hasattr(parameter, "__tensor_flatten__"):
        yield parameter
        return
    names, _ = parameter.__tensor_flatten__()
    for name in names:
        yield getattr(parameter, name)
