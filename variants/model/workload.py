"""What is decoded: how many sequences, from which context length, for how many tokens."""

from dataclasses import dataclass
from typing import Literal, get_args

from decodescope.analyzer.errors import InputError
from decodescope.variants.model.sampling import Sampling

DType = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True)
class DecodeWorkload:
    """Decode `new_tokens` tokens for `batch` sequences after `context` prompt tokens.

    Without `sampling` every token is the most likely one (greedy).

    Raises:
        InputError: a count below 1.
    """

    batch: int = 1
    context: int = 128
    new_tokens: int = 128
    dtype: DType = "bf16"
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("batch", self.batch),
            ("context", self.context),
            ("tokens", self.new_tokens),
        ):
            if value < 1:
                raise InputError(f"--{name} {value}: must be at least 1")

    @property
    def cache_length(self) -> int:
        """KV-cache positions the workload fills: prompt and new tokens."""
        return self.context + self.new_tokens


def parse_dtype(name: str) -> DType:
    """The dtype of that name.

    Raises:
        InputError: any other name.
    """
    for dtype in get_args(DType):
        if name == dtype:
            return dtype  # type: ignore[no-any-return]
    raise InputError(f"--dtype {name}: must be one of {', '.join(get_args(DType))}")
