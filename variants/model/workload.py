"""The workload of a run: sequences, context, new tokens, dtype and sampling."""

import math
from dataclasses import dataclass
from typing import Literal, cast, get_args

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.report import SamplingSettings

DType = Literal["bf16", "fp16", "fp32"]

_MIN_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class DecodeWorkload:
    """Decode `new_tokens` tokens for `batch` sequences after `context` prompt tokens.

    Without `sampling` every token is the most likely one (greedy). With it a token is drawn from
    softmax(logits / temperature), restricted to the `top_k` most likely tokens, then to the fewest
    of them whose probabilities add up to `top_p`; a filter that is None keeps every token. The same
    seed gives the same tokens.

    Raises:
        InputError: a count below 1, or a sampling setting out of range.
    """

    batch: int = 1
    context: int = 128
    new_tokens: int = 128
    dtype: DType = "bf16"
    sampling: SamplingSettings | None = None

    def __post_init__(self) -> None:
        if self.sampling is not None:
            _check_sampling(self.sampling)
        for name, value in (
            ("batch", self.batch),
            ("context", self.context),
            ("tokens", self.new_tokens),
        ):
            if value < 1:
                raise InputError(f"--{name} {value}: must be at least 1")

    @property
    def cache_length(self) -> int:
        return self.context + self.new_tokens


def default_dtype(device: str) -> DType:
    return "bf16" if device == "cuda" else "fp32"


def parse_dtype(name: str) -> DType:
    """The dtype called `name`.

    Raises:
        InputError: any other name.
    """
    if name not in get_args(DType):
        raise InputError(f"--dtype {name}: must be one of {', '.join(get_args(DType))}")
    return cast(DType, name)


def _check_sampling(sampling: SamplingSettings) -> None:
    temperature, top_k, top_p = sampling.temperature, sampling.top_k, sampling.top_p
    if not (temperature >= _MIN_TEMPERATURE and math.isfinite(temperature)):
        raise InputError(
            f"--temperature {temperature:g}: must be at least {_MIN_TEMPERATURE:g}, or 0 "
            "for greedy decoding"
        )
    if top_k is not None and top_k < 1:
        raise InputError(f"--top-k {top_k}: must be at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"--top-p {top_p:g}: must be above 0 and at most 1")
    if not 0 <= sampling.seed < 1 << 63:
        raise InputError(f"--seed {sampling.seed}: must be from 0 to 2^63 - 1")
