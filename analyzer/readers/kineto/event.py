"""One event of a Chrome trace, as far as analyses need it."""

import re

import msgspec

Id = int | str | float | None
_NONE = msgspec.Raw(b"")
_SURROGATE = re.compile("[\ud800-\udfff]")


class EventArgs(msgspec.Struct, gc=False):
    """The arguments that analyses need; every other key is skipped unread.

    What `record_shapes` adds to operators stays JSON until one is asked for.
    """

    device: Id = None
    stream: Id = None
    correlation: Id = None
    external_id: Id = msgspec.field(default=None, name="External id")
    old_external_id: Id = msgspec.field(default=None, name="external id")
    graph_id: Id = msgspec.field(default=None, name="graph id")
    graph_node_id: Id = msgspec.field(default=None, name="graph node id")
    input_dims: msgspec.Raw = msgspec.field(default=_NONE, name="Input Dims")
    input_types: msgspec.Raw = msgspec.field(default=_NONE, name="Input type")
    input_strides: msgspec.Raw = msgspec.field(default=_NONE, name="Input Strides")
    concrete_inputs: msgspec.Raw = msgspec.field(default=_NONE, name="Concrete Inputs")


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` stay literals in µs until they are converted exactly."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: EventArgs | None = None


def clean_text(text: str) -> str:
    """Put a replacement character for bytes that were no UTF-8 and for halves of pairs."""
    return _SURROGATE.sub("\ufffd", text)


def clean(value: object) -> object:
    """The same for every string inside a decoded JSON value."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean(item) for key, item in value.items()}
    return value


def event_of(value: object) -> Event | None:
    """An event from a decoded value whose numbers are text, None if it is no object."""
    if not isinstance(value, dict):
        return None
    args = value.get("args")
    known = args if isinstance(args, dict) else {}
    return Event(
        ph=_string(value.get("ph")) or "",
        cat=_string(value.get("cat")),
        name=_string(value.get("name")),
        pid=_id(value.get("pid")),
        tid=_id(value.get("tid")),
        ts=_literal(value.get("ts")),
        dur=_literal(value.get("dur")),
        args=EventArgs(
            device=_id(known.get("device")),
            stream=_id(known.get("stream")),
            correlation=_id(known.get("correlation")),
            external_id=_id(known.get("External id")),
            old_external_id=_id(known.get("external id")),
            graph_id=_id(known.get("graph id")),
            graph_node_id=_id(known.get("graph node id")),
            input_dims=_json(known.get("Input Dims")),
            input_types=_json(known.get("Input type")),
            input_strides=_json(known.get("Input Strides")),
            concrete_inputs=_json(known.get("Concrete Inputs")),
        ),
    )


def _string(value: object) -> str | None:
    return clean_text(value) if isinstance(value, str) else None


def _id(value: object) -> Id:
    return clean_text(value) if isinstance(value, str) else None


def _literal(value: object) -> msgspec.Raw:
    text = value if isinstance(value, str) else ""
    return msgspec.Raw(text.encode("utf-8", "replace"))


def _json(value: object) -> msgspec.Raw:
    return _NONE if value is None else msgspec.Raw(msgspec.json.encode(clean(value)))
