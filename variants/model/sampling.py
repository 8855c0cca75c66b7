"""How the next token is drawn: temperature, top-k, top-p and seed."""

import math
from dataclasses import dataclass

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.report import SamplingSettings

_MIN_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draws from softmax(logits / temperature), of the `top_k` most likely tokens, and of these the
    fewest whose probability adds up to `top_p`; None filters nothing. The same seed gives the same
    tokens again.

    Raises:
        InputError: a value out of range. Greedy decoding is no `Sampling` at all.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.temperature >= _MIN_TEMPERATURE and math.isfinite(self.temperature)):
            raise InputError(
                f"--temperature {self.temperature:g}: must be at least {_MIN_TEMPERATURE:g}, or 0 "
                "for greedy decoding"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"--top-k {self.top_k}: must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"--top-p {self.top_p:g}: must be above 0 and at most 1")
        if not 0 <= self.seed < 1 << 63:
            raise InputError(f"--seed {self.seed}: must be from 0 to 2^63 - 1")

    @property
    def settings(self) -> SamplingSettings:
        """The same as a report holds it."""
        return SamplingSettings(self.temperature, self.top_k, self.top_p, self.seed)


def requested_sampling(settings: SamplingSettings | None) -> Sampling | None:
    """What a request asks for, checked; a temperature of 0 is greedy.

    Raises:
        InputError: as `Sampling`.
    """
    if settings is None or settings.temperature == 0:
        return None
    return Sampling(settings.temperature, settings.top_k, settings.top_p, settings.seed)
