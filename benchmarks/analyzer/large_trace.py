"""Makes a large trace from a recorded one by repeating its events at later times."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import count, islice
from pathlib import Path
from typing import Any

from decodescope.analyzer.chrome.events import timestamp_text
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.files import replacing_stream

_IDS = ("correlation", "External id", "external id")
_SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_PAUSE_NS = 1_000_000
_HOLE = re.compile(r'"@(ts|id):(-?\d+)@"')

# One event as text with holes for what changes: text, then ("ts" or "id", value, text) repeated.
_Template = tuple[str, ...]


def make_trace(source: bytes, events: int, path: Path) -> int:
    """Write a trace of exactly `events` events to `path` and return its size in bytes.

    `source` is Kineto JSON. Each repetition begins 1 ms after the end of the previous one and has
    its own correlation ids, flow ids and external ids. The layout is libkineto's, without operator
    shapes, which the profiler records only on request.

    Raises:
        TraceError: `source` holds no complete events.
    """
    return write_trace(parsed(source), events, path)


def parsed(source: bytes) -> dict[str, Any]:
    """Kineto JSON with every fraction as a `Decimal`, so that no time is rounded."""
    document: dict[str, Any] = json.loads(source, parse_float=Decimal)
    return document


def write_trace(document: dict[str, Any], events: int, path: Path) -> int:
    """`make_trace` from what `parsed` returns, whose events may have been changed since."""
    recorded = [event for event in document["traceEvents"] if isinstance(event, dict)]
    if not any(event.get("ph") == "X" for event in recorded):
        raise TraceError("benchmark source: no complete events; give a captured trace")
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    opening = json.dumps(head, indent=2, default=float)[:-2] + ',\n  "traceEvents": [\n'
    with replacing_stream(path) as file:
        size = file.write(opening.encode())
        for number, event in enumerate(islice(_repeated(recorded), events)):
            size += file.write((",\n" + event if number else event).encode())
        return size + file.write(b"\n  ]\n}\n")


def _repeated(recorded: list[dict[str, Any]]) -> Iterator[str]:
    templates = [_template(event) for event in recorded]
    times = [_ns(event["ts"]) for event in recorded if "ts" in event]
    ends = [_ns(event["ts"]) + _ns(event.get("dur", 0)) for event in recorded if "ts" in event]
    period_ns = max(ends) - min(times) + _PAUSE_NS
    period_id = 1 + max((value for event in recorded for value in _ids_of(event)), default=0)
    for repetition in count():
        for template in templates:
            yield _filled(template, repetition * period_ns, repetition * period_id)


def _filled(template: _Template, later_ns: int, later_id: int) -> str:
    pieces = [template[0]]
    for kind, value, text in zip(template[1::3], template[2::3], template[3::3], strict=True):
        number = int(value)
        pieces.append(timestamp_text(number + later_ns) if kind == "ts" else str(number + later_id))
        pieces.append(text)
    return "".join(pieces)


def _ns(microseconds_: object) -> int:
    return int(Decimal(str(microseconds_)) * 1000)


def _ids_of(event: dict[str, Any]) -> Iterator[int]:
    args = event.get("args")
    values = [args.get(key) for key in _IDS] if isinstance(args, dict) else []
    for value in (*values, event.get("id")):
        if isinstance(value, int) and value > 0:
            yield value


def _template(event: dict[str, Any]) -> _Template:
    fields = dict(event)
    args = fields.pop("args", None)
    if "ts" in fields:
        fields["ts"] = f"@ts:{_ns(fields['ts'])}@"
    if isinstance(fields.get("id"), int):
        fields["id"] = f"@id:{fields['id']}@"
    timing: dict[str, Any] = {key: fields.pop(key) for key in ("ts", "dur") if key in fields}
    phase = {key: fields.pop(key) for key in ("ph",) if key in fields}
    text = f"  {{\n    {_members(phase | fields)}"
    if timing:
        text += f",\n    {_members(timing)}"
    if isinstance(args, dict):
        text += f',\n    "args": {{\n      {_members(_with_holes(args))}\n    }}'
    return tuple(_HOLE.split(text + "\n  }"))


def _with_holes(args: dict[str, Any]) -> dict[str, Any]:
    return {
        key: f"@id:{value}@" if key in _IDS and isinstance(value, int) and value > 0 else value
        for key, value in args.items()
        if key not in _SHAPES
    }


def _members(fields: dict[str, Any]) -> str:
    return ", ".join(f"{json.dumps(key)}: {_value(value)}" for key, value in fields.items())


def _value(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
