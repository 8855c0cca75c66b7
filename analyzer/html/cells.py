"""Figures and names of reports as short text for a page, beyond what every output words alike."""

import html
import re

from markupsafe import Markup

from decodescope.analyzer.formatting import UNKNOWN, percent, plain_text, significant

_BOUND_WORDS = {"mixed": "mixed", "unknown": "bound unknown"}


def bound_words(bound: str) -> str:
    """What bounds a step, in words."""
    return _BOUND_WORDS.get(bound, f"{bound}-bound")


def breakable(name: str) -> Markup:
    """A name of code as text that breaks between its parts rather than within a word."""
    return Markup(re.sub(r"(::|[/_])", r"\1<wbr>", html.escape(plain_text(name))))


def flops_rate(flops_per_s: float) -> str:
    """FLOP/s in tera, giga or mega."""
    for factor, unit in ((1e12, "T"), (1e9, "G")):
        if flops_per_s >= factor:
            return f"{significant(flops_per_s / factor)} {unit}FLOP/s"
    return f"{significant(flops_per_s / 1e6)} MFLOP/s"


def share(part: float | None, whole: float | None) -> str:
    """`part` of `whole` in per cent with the sign, a dash where either is missing."""
    if part is None or not whole:
        return UNKNOWN
    return f"-{percent(-part / whole)} %" if part < 0 else f"{percent(part / whole)} %"
