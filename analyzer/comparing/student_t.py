"""Quantiles of Student's t, for the intervals of few measurements."""

import math

# Beyond this the quantile is within 0.2 % of the normal one, from above.
_MAX_DEGREES = 1000
_HALVINGS = 60


def two_sided_t(confidence: float, degrees: int) -> float:
    """The t with P(|T| < t) = `confidence` for a whole number (>= 1) of degrees of freedom.

    The finite sums of Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4,
    inverted by halving. From 1,000 degrees on the quantile of 1,000 is given.
    """
    degrees = min(degrees, _MAX_DEGREES)
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _covered(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _covered(angle: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) * tan(angle))."""
    odd = degrees % 2 == 1
    if degrees == 1:
        return 2 * angle / math.pi
    squared_cosine = math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = term
    for factor in range(3 if odd else 2, degrees - 1, 2):
        term *= squared_cosine * (factor - 1) / factor
        total += term
    covered = math.sin(angle) * total
    return 2 / math.pi * (angle + covered) if odd else covered
