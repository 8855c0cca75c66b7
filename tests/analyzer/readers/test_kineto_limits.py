"""Text that is far larger, or has far more parts, than a trace: read in bounded time and memory."""

import json
import tracemalloc
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers import json_text
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.readers.kineto.stream import EventStream
from tests.helpers.kineto_events import call, codes, document, op, read

KERNEL = document([call(0, 5, 1), op(10, 20, 1)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (lambda: "{" + "," * 4_000_000, "broken JSON without a traceEvents list"),
        (lambda: "[" + "," * 4_000_000, "before its first complete event"),
        (lambda: "{" + " \n" * 2_000_000, "broken JSON without a traceEvents list"),
        (lambda: json.dumps({f"token{i}": i for i in range(300_000)}), "over 10,000 keys"),
        (lambda: "[" + "1," * 4_000_000 + "1]", "over 10,000 entries that are no events"),
        (lambda: '{"a": ' + "[" * 4_000_000, "a value with more levels than can be read"),
        (lambda: '["' + "x" * 50_000_000 + '"]', "a value of over 16 MiB"),
        (lambda: '{"a": "' + "x" * 50_000_000 + '"}', "a value of over 16 MiB"),
    ],
    ids=["commas in {", "commas in [", "blank", "keys", "numbers", "nested", "text", "value"],
)
def test_large_text_that_is_no_trace_is_refused(text: Callable[[], str], says: str) -> None:
    """If each key, comma or entry cost time in proportion to the buffer, each took minutes."""
    with pytest.raises(TraceError, match=says) as raised:
        read(text())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (lambda text: text[:-2] + b"," + b"null," * 20_000 + text[-2:], "over 10,000 entries"),
        (lambda text: text[:-2] + b', {"ph": "X", "name": "' + b"x" * 20_000_000, "over 16 MiB"),
        (lambda text: text[:-1] + b',"a":0' * 20_000 + b"}", "over 10,000 keys"),
    ],
    ids=["entries", "name", "keys"],
)
def test_what_precedes_a_limit_is_used(rest: Callable[[bytes], bytes], says: str) -> None:
    trace = read(rest(KERNEL))
    assert len(trace.ops) == 1
    assert "cut_trace" in codes(trace)
    assert says in " ".join(finding.message for finding in trace.findings)


def test_many_keys_before_the_events_do_not_hide_them() -> None:
    keys = {f"key{i}": {"é\ud800": ["日本", i]} for i in range(9_000)}
    trace = read(document([op(10, 20, 1)], **keys, deviceProperties=[{"id": 0, "name": "Gerät"}]))
    assert len(trace.ops) == 1
    assert trace.device_names == {0: "Gerät"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=60,
)


@settings(max_examples=60, deadline=None)
@example(1.5e-30, 1, True)
@given(values, st.integers(1, 9), st.booleans())
def test_a_value_decodes_alike_however_little_is_looked_at(
    value: object, window: int, escaped: bool
) -> None:
    text = json.dumps({"before": 1, "deviceProperties": value}, ensure_ascii=escaped)
    data = text.encode()[:-1] + b', "traceEvents": []}'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_WINDOW_BYTES", window)
        source = EventStream(ByteSource(BytesIO(data), "some"))
        assert list(source.batches()) == [[]]
    assert source.metadata == json.loads(text)


def test_the_memory_of_a_value_is_bounded() -> None:
    data = b'{"a": ["' + b"x" * 200_000_000 + b'"]}'
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="a value of over 16 MiB"):
            read_kineto_bytes(data, "some.json")
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()
