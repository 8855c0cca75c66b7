"""Renders the templates to one self-contained page: style and script are inside it.

Text from a trace or a model is escaped, and its control characters are made visible. The content
security policy of the page forbids every request and every script except its own.
"""

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from decodescope.analyzer.names.kernel_names import short_kernels
from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.text import formatting
from decodescope.analyzer.text.formatting import UNKNOWN, percent, significant
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary import words
from decodescope.analyzer.vocabulary.class_colors import (
    FAMILY_COLORS,
    GAP_COLORS,
    PART_COLORS,
    ROLE_FAMILIES,
)

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPT = "report.js"


def render_page(**values: Any) -> str:
    """`report.html.j2` rendered with `values`."""
    script = (_TEMPLATES / _SCRIPT).read_text(encoding="utf-8")
    page = _environment().get_template("report.html.j2")
    return page.render(script=Markup(script), script_hash=_policy_hash(script), **values)


@cache
def _environment() -> Environment:
    """It compiles the templates once a process; that takes longer than to render them."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "bytes": formatting.bytes_size,
        "count": formatting.count,
        "duration": formatting.duration,
        "number": formatting.number,
        "percent": formatting.percent,
        "rate": formatting.rate,
        "cut": cut_middle,
        "extent": formatting.extent_text,
        "short_kernels": short_kernels,
        "breakable": breakable,
        "beaten": words.beaten_text,
        "bound": words.bound_words,
        "flops": formatting.flops_rate,
        "change": words.change_text,
        "exact": words.exact_microseconds,
        "exact_change": words.exact_change,
        "step_part": words.step_part_words,
        "interval": lambda found: formatting.interval_text(found, significant),
        "causes": words.gap_causes,
        "overlap": words.overlap_words,
        "layers": words.layers_words,
        "step_sizes": words.step_sizes,
        "role_rate": words.role_rate,
        "role_limit": words.role_limit,
        "role_of_limit": words.role_of_limit,
        "part": words.part_words,
        "speed": words.speed_text,
        "straggler": words.straggler_text,
        "signed": formatting.signed_duration,
    }
    environment.globals |= {
        "share": share,
        "standings_note": words.STANDINGS_NOTE,
        "step_note": words.STEP_NOTE,
        "unknown": UNKNOWN,
        "weights_note": formatting.weights_note,
        "role_known_by": words.ROLE_KNOWN_BY,
        "roles_note": words.ROLES_NOTE,
        "role_families": ROLE_FAMILIES,
        "family_colors": FAMILY_COLORS,
        "gap_colors": GAP_COLORS,
        "part_colors": PART_COLORS,
    }
    return environment


def _shown(value: Any) -> Any:
    """The value of a template's expression as it is shown, before escaping."""
    if value is None:
        return UNKNOWN
    return plain_line(value) if type(value) is str else value


def _policy_hash(script: str) -> str:
    """A script's name in a content security policy: the base64 of its SHA-256."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def breakable(name: str) -> Markup:
    """A name from code with line breaks allowed between its parts."""
    return Markup(re.sub(r"(::|[/_])", r"\1<wbr>", html.escape(plain_line(name))))


def share(part: float | None, whole: float | None) -> str:
    """`part` of `whole` in per cent with the sign, a dash if either is missing."""
    if part is None or not whole:
        return UNKNOWN
    return f"-{percent(-part / whole)} %" if part < 0 else f"{percent(part / whole)} %"
