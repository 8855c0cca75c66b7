"""Sampling in plain PyTorch: the reference of the sampling kernels, and how a CPU samples.

Needs no Triton and runs on any device. Random numbers, probability mass and comparisons use only
operations that are exact everywhere (integers, and float32 additions and multiplications in a fixed
order, not fused), so kernels and reference choose the same tokens, bit for bit.

The choice is the Gumbel-max trick: argmax over the kept tokens of logit / temperature + g, with
g = -log(-log u) independent for each token, is a draw from their softmax (Gumbel 1954; Maddison et
al., "A* Sampling", 2014, https://arxiv.org/abs/1411.0030). u comes from Philox4x32-10 (Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3", 2011), whose output depends on key and counter
alone: the key is the seed, the counter (token // 4, position, sequence, 0), and token % 4 selects
one of its four words. So a draw does not depend on earlier draws.
"""

import torch

# The probability mass of a longer row, in units of 2^-40 of its largest, would not fit an int64.
MAX_VOCABULARY = 1 << 20

# Replaces infinities before a subtraction, so that the difference stays finite.
_LARGEST = 1e38
_WORD = 0xFFFFFFFF
LOG_COEFFICIENTS = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
EXP_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


def choose_reference(
    logits: torch.Tensor,
    position: int,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> torch.Tensor:
    """The drawn ids, int64 [batch], of `logits` [batch, vocabulary] in any float dtype.

    `position` is that of the token that gave the logits. The lowest of ids with equal scores wins.
    """
    scaled = scaled_logits_reference(logits, temperature)
    scores = scaled + gumbel_noise_reference(seed, position, logits)
    kept = kept_tokens(scaled, top_k, top_p)
    scores = torch.where(kept, scores, -torch.inf)
    return (kept & (scores == scores.amax(-1, keepdim=True))).int().argmax(-1)


def scaled_logits_reference(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """logits / temperature in float32: NaN as -inf (never drawn), +inf as 1e38."""
    scaled = logits.float() * inverse_float32(temperature)
    return torch.where(scaled.isnan(), -torch.inf, scaled).clamp(max=_LARGEST)


def kept_tokens(scaled: torch.Tensor, top_k: int | None, top_p: float | None) -> torch.Tensor:
    """Which tokens may be drawn, bool [batch, vocabulary].

    First those whose logit is at least the k-th largest; then the fewest of these, most probable
    first, whose probability adds up to top_p: transformers' filters in transformers' order. Of
    equal logits at the border top-k keeps all, as transformers does. Top-p keeps as many as it
    needs, highest ids first, where transformers leaves the choice to an unstable sort.
    """
    kept = torch.ones_like(scaled, dtype=torch.bool)
    if top_k is not None:
        kept = scaled >= scaled.topk(min(top_k, scaled.shape[-1]), dim=-1).values[:, -1:]
    if top_p is None or top_p >= 1:
        return kept
    mass = torch.where(kept, probability_mass_reference(scaled), 0)
    target = (mass.sum(-1, keepdim=True).double() * to_float32(top_p)).ceil().long()
    # Flipped so that a stable sort puts the highest id first among equals.
    order = scaled.shape[-1] - 1 - scaled.flip(-1).argsort(dim=-1, descending=True, stable=True)
    sorted_mass = mass.gather(-1, order)
    above = sorted_mass.cumsum(-1) - sorted_mass
    return kept & torch.zeros_like(kept).scatter(-1, order, above < target)


def probability_mass_reference(scaled: torch.Tensor) -> torch.Tensor:
    """floor(2^40 exp(z - max z)), int64: its sums do not depend on their order.

    The exponential is Cephes' expf: 2^n times a polynomial.
    """
    finite = scaled.clamp(min=-_LARGEST)
    distance = (finite - finite.amax(-1, keepdim=True)).clamp(min=-30.0)
    halvings = (distance * 1.44269504 + 0.5).floor()
    rest = distance - halvings * 0.693359375
    rest = rest - halvings * -2.12194440e-4
    factor = _horner(rest, EXP_COEFFICIENTS) * (rest * rest) + rest + 1.0
    return ((factor * 16777216.0).long() << 16) >> (-halvings).long()


def gumbel_noise_reference(seed: int, position: int, like: torch.Tensor) -> torch.Tensor:
    """g = -log(-log u), float32, with the shape [batch, vocabulary] and device of `like`."""
    batch, vocabulary = like.shape
    counters = torch.arange(-(-vocabulary // 4), device=like.device)
    sequences = torch.arange(batch, device=like.device)[:, None]
    zeros = torch.zeros_like(counters + sequences)
    words = philox(seed, (zeros + counters, zeros + position, zeros + sequences, zeros))
    bits = torch.stack(words, dim=-1).reshape(batch, -1)[:, :vocabulary]
    # v = 1 - u keeps its resolution near 0, where the largest g come from: -log u = -log(1 - v).
    v = bits.float().clamp(min=0.5) * 2.0**-32
    return -_log(-_log1p_negative(v.clamp(max=1 - 2.0**-24)))


def philox(seed: int, counter: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Philox4x32-10: four words of random bits for four counter words, all in int64 [any shape]."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _WORD, seed >> 32 & _WORD
    for _ in range(10):
        high0, low0 = _product_words(0xD2511F53, c0)
        high2, low2 = _product_words(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def to_float32(value: float) -> float:
    """The float32 nearest to `value`, which a kernel computes with."""
    return float(torch.tensor(value, dtype=torch.float32))


def inverse_float32(temperature: float) -> float:
    """1 / temperature in float32, which the logits are multiplied by."""
    return to_float32(1.0 / temperature)


def _product_words(factor: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of a product; overflow of int64 keeps the low 64 bits correct."""
    product = word * factor
    return (product >> 32) & _WORD, product & _WORD


def _log(x: torch.Tensor) -> torch.Tensor:
    """log x of positive normal float32, to about 1 ulp (Cephes' logf)."""
    bits = x.view(torch.int32)
    exponent = (bits >> 23) - 127
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).view(torch.float32)
    high = mantissa > 1.4142135
    mantissa = torch.where(high, mantissa * 0.5, mantissa)
    return _log_of_parts(mantissa - 1.0, (exponent + high.int()).float())


def _log1p_negative(v: torch.Tensor) -> torch.Tensor:
    """log(1 - v) of 0 < v < 1; for small v without rounding 1 - v."""
    return torch.where(v < 0.29, _log_of_parts(-v, torch.zeros_like(v)), _log(1.0 - v))


def _log_of_parts(f: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """log((1 + f) 2^exponent), -0.3 < f < 0.42."""
    square = f * f
    y = _horner(f, LOG_COEFFICIENTS) * f * square
    y = y + exponent * -2.12194440e-4
    y = y - square * 0.5
    return f + y + exponent * 0.693359375


def _horner(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    result = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result
