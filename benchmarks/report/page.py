"""Renders the templates of the documents that are written from the records."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.report import claims, comparisons, glance, measured, peers, tuning
from benchmarks.report.records import Record, origins
from decodescope.analyzer.text import formatting
from decodescope.analyzer.text.formatting import percent, significant
from decodescope.analyzer.text.plain import plain_line


def render(template: str, records: Mapping[str, Record], **values: Any) -> str:
    """A template with the figures of `records`, which it names as `r`, and `values`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[[Any], str]] = {
        "bytes": formatting.bytes_size,
        "cell": lambda text: plain_line(str(text)).replace("|", "\\|"),
        "duration": formatting.duration,
        "model": lambda name: name.partition("@")[0],
        "percent": lambda share: f"{percent(share)} %",
        "rate": formatting.rate,
        "ratio": lambda value: f"{value:.3f}",
        "short": significant,
        "signed": formatting.signed_duration,
        "us": formatting.microseconds,
    }
    environment.filters |= filters
    environment.globals |= {
        "claims": claims,
        "comparisons": comparisons,
        "glance": glance,
        "measured": measured,
        "origins": origins,
        "raced_peers": peers.raced_peers,
        "tuning": tuning,
    }
    return environment.get_template(template).render(r=records, **values)
