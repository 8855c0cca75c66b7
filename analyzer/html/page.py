"""Turns templates into one page that needs nothing else: style and script stand inside it.

Everything that comes from a trace or a model is escaped, and its control characters are made
visible. The policy in the page's head forbids every request and every script but the page's own.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from decodescope.analyzer import formatting
from decodescope.analyzer.formatting import UNKNOWN, plain_text, significant
from decodescope.analyzer.html import cells
from decodescope.analyzer.views import words
from decodescope.analyzer.views.class_colors import FAMILY_COLORS, GAP_COLORS, PART_COLORS
from decodescope.analyzer.views.names import cut_middle, shorten_kernel

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPT = "report.js"


def render_page(**values: Any) -> str:
    """The page that `report.html.j2` makes of `values`."""
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
        "kernel": shorten_kernel,
        "breakable": cells.breakable,
        "bound": cells.bound_words,
        "flops": cells.flops_rate,
        "change": words.change_text,
        "interval": lambda found: formatting.interval_text(found, significant),
        "part": words.part_words,
        "speed": words.speed_text,
        "signed": formatting.signed_duration,
    }
    environment.globals |= {
        "share": cells.share,
        "unknown": UNKNOWN,
        "weights_note": formatting.weights_note,
        "family_colors": FAMILY_COLORS,
        "gap_colors": GAP_COLORS,
        "part_colors": PART_COLORS,
    }
    script = (_TEMPLATES / _SCRIPT).read_text(encoding="utf-8")
    page = environment.get_template("report.html.j2")
    return page.render(script=Markup(script), script_hash=_policy_hash(script), **values)


def _shown(value: Any) -> Any:
    """What an expression of a template puts into the page, before it is escaped."""
    if value is None:
        return UNKNOWN
    return plain_text(value) if type(value) is str else value


def _policy_hash(script: str) -> str:
    """How a content security policy names a script: the base64 of its SHA-256."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
