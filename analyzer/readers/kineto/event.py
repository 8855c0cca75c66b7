"""One event of a Chrome trace: the fields that analyses need, and its times in integer nanoseconds.

JSON numbers in microseconds are converted exactly. A float64 of an absolute time such as
1661938466265032.123 µs has a spacing of 0.25 µs, so the digits are never passed through a float.
"""

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.readers.trace_columns import LIMIT_NS, NOT_GIVEN
from decodescope.analyzer.trace import Bools, Int64s

Id = int | str | float | None
_Value = TypeVar("_Value")
_NONE = msgspec.Raw(b"")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = b"0123456789.,"
_MAX_INTEGER_DIGITS = 16


class EventArgs(msgspec.Struct, gc=False):
    """The arguments that analyses need; every other key is skipped.

    Launch shapes, what collectives exchange, the arguments that `record_shapes` adds to operators,
    the name of the kernel that a call launches, and annotations of graph nodes stay JSON until one
    is needed.
    """

    # In the order of Kineto's text: msgspec looks for a key behind the last one that it found.
    external_id: Id = msgspec.field(default=NOT_GIVEN, name="External id")
    device: Id = None
    stream: Id = None
    correlation: Id = NOT_GIVEN
    registers: msgspec.Raw = msgspec.field(default=_NONE, name="registers per thread")
    shared_memory: msgspec.Raw = msgspec.field(default=_NONE, name="shared memory")
    grid: msgspec.Raw = _NONE
    block: msgspec.Raw = _NONE
    graph_id: Id = msgspec.field(default=NOT_GIVEN, name="graph id")
    graph_node_id: Id = msgspec.field(default=NOT_GIVEN, name="graph node id")
    concrete_inputs: msgspec.Raw = msgspec.field(default=_NONE, name="Concrete Inputs")
    input_types: msgspec.Raw = msgspec.field(default=_NONE, name="Input type")
    input_strides: msgspec.Raw = msgspec.field(default=_NONE, name="Input Strides")
    input_dims: msgspec.Raw = msgspec.field(default=_NONE, name="Input Dims")
    kernel: msgspec.Raw = _NONE
    module_fqn: msgspec.Raw = _NONE
    annotation: msgspec.Raw = _NONE
    text: msgspec.Raw = msgspec.field(default=_NONE, name="str")
    label: msgspec.Raw = msgspec.field(default=_NONE, name="name")
    collective: msgspec.Raw = msgspec.field(default=_NONE, name="Collective name")
    in_elements: msgspec.Raw = msgspec.field(default=_NONE, name="In msg nelems")
    dtype: msgspec.Raw = _NONE
    group_ranks: msgspec.Raw = msgspec.field(default=_NONE, name="Process Group Ranks")
    old_external_id: Id = msgspec.field(default=NOT_GIVEN, name="external id")


_FIELDS = msgspec.structs.fields(EventArgs)


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` stay literals in µs so that they are converted exactly."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Id = NOT_GIVEN
    tid: Id = NOT_GIVEN
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: EventArgs | None = None


def decoded(decoder: msgspec.json.Decoder[_Value], text: bytes | str) -> _Value | None:
    """The value of a JSON text; None if it is broken, or of another type."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def clean_text(text: str) -> str:
    """Replace bytes that were not UTF-8, and unpaired surrogates, by replacement characters."""
    return _SURROGATE.sub("\ufffd", text)


def clean(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean(item) for key, item in value.items()}
    return value


def event_of(value: object) -> Event | None:
    """An event from a decoded value whose numbers are text, None if it is not an object."""
    if not isinstance(value, dict):
        return None
    args = value.get("args")
    known = args if isinstance(args, dict) else {}
    kept: dict[str, Any] = {
        field.name: (_json if field.type is msgspec.Raw else _text)(known.get(field.encode_name))
        for field in _FIELDS
    }
    texts: dict[str, Any] = {key: _text(value.get(key)) for key in ("cat", "name", "pid", "tid")}
    return Event(
        ph=_text(value.get("ph")) or "",
        ts=_literal(value.get("ts")),
        dur=_literal(value.get("dur")),
        args=EventArgs(**kept),
        **texts,
    )


def _text(value: object) -> str | None:
    return clean_text(value) if isinstance(value, str) else None


def _literal(value: object) -> msgspec.Raw:
    text = value if isinstance(value, str) else ""
    return msgspec.Raw(text.encode("utf-8", "replace"))


def _json(value: object) -> msgspec.Raw:
    return _NONE if value is None else msgspec.Raw(msgspec.json.encode(clean(value)))


def to_nanoseconds(numbers: Sequence[msgspec.Raw]) -> tuple[Int64s, Bools]:
    """Nanoseconds of JSON number literals in µs, and which of them are usable.

    Literals are unusable if they are not finite numbers (NaN, null, text) or are beyond ±2**61 ns;
    their nanoseconds are 0. More than three decimals are rounded half to even.
    """
    fast = _fixed_point(b",".join(numbers))
    if fast is not None and len(fast) == len(numbers):
        within = np.abs(fast) <= LIMIT_NS
        return np.where(within, fast, 0), within
    slow = [_nanoseconds(bytes(number)) for number in numbers]
    usable = np.array([value is not None for value in slow], dtype=np.bool_)
    return np.array([value or 0 for value in slow], dtype=np.int64), usable


def _fixed_point(text: bytes) -> Int64s | None:
    """Comma-joined plain decimals with at most three places, or None if one is anything else."""
    if not text or text.translate(None, _PLAIN):
        return None
    characters = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(characters == ord(",")), len(text))
    dots = np.flatnonzero(characters == ord("."))
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots_before = np.searchsorted(dots, ends)
    dots_inside = np.diff(dots_before, prepend=0)
    lengths = ends - starts
    if dots_inside.max() > 1 or (lengths - dots_inside).min() < 1:
        return None
    decimals = np.zeros(len(ends), dtype=np.int64)
    has_dot = dots_inside == 1
    decimals[has_dot] = (ends - 1)[has_dot] - dots[dots_before[has_dot] - 1]
    integer_digits = lengths - dots_inside - decimals
    widest = integer_digits == _MAX_INTEGER_DIGITS
    if (
        decimals.max() > 3
        or integer_digits.max() > _MAX_INTEGER_DIGITS
        or (characters[starts[widest]] > ord("2")).any()
    ):
        return None
    digits = np.fromstring(text.translate(None, b"."), dtype=np.int64, sep=",")
    if len(digits) != len(ends):
        return None
    return np.asarray(digits * 10 ** (3 - decimals), dtype=np.int64)


def _nanoseconds(literal: bytes) -> int | None:
    try:
        value = Decimal(literal.strip(b'" \t\r\n').decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or value.adjusted() > 20:
        return None
    if value.adjusted() < -12:
        return 0
    nanoseconds = int((value * 1000).to_integral_value(rounding=ROUND_HALF_EVEN))
    return nanoseconds if abs(nanoseconds) <= LIMIT_NS else None
