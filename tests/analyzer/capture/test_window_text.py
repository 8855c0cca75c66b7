"""Paths of graph nodes in the text of a trace, however it is cut."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.capture.profiler_session import with_node_paths
from tests.helpers.hostile import HOSTILE

# As Kineto writes them: one event over several lines, its arguments in between.
EVENT = """  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7,
    "ts": 4590917189193.356, "dur": 2.560,
    "args": {
      "queued": 0, "device": 0, "stream": 7, "correlation": 4904,
      "est. achieved occupancy %%": 0, "graph id": 4%s
    }
  },"""
NODES = ('\n,      "graph node id": 12', ',"graph node id":123', ', "graph node id" : 1234', "")


def text_of(names: tuple[str, ...] = ("kernel",) * 4) -> bytes:
    named = zip(names, NODES, strict=True)
    events = "\n".join(EVENT % (json.dumps(name)[1:-1], node) for name, node in named)
    return f'{{"schemaVersion": 1, "traceEvents": [\n{events[:-1]}\n]}}'.encode()


def cut(text: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(at), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def arguments(text: bytes) -> list[dict[str, Any]]:
    return [event["args"] for event in json.loads(text)["traceEvents"]]


@pytest.mark.parametrize("path", ["model/layer.0/mlp", 'a "quoted"\\ name\n', HOSTILE + "\ud800"])
def test_the_ops_of_a_node_have_its_path(path: str) -> None:
    plain = text_of()
    written = b"".join(with_node_paths([plain], {123: path, 1: "other", 4904: "no node"}))
    given, plain_args = arguments(written), arguments(plain)
    assert given[1].pop("str") == path
    assert given == plain_args


@given(st.lists(st.integers(0, len(text_of())), max_size=6))
def test_cuts_change_nothing(at: list[int]) -> None:
    paths = {12: "a", 123: "b", 1234: "c"}
    whole = b"".join(with_node_paths([text_of()], paths))
    assert b"".join(with_node_paths(cut(text_of(), at), paths)) == whole
    assert [one.get("str") for one in arguments(whole)] == ["a", "b", "c", None]


def test_single_bytes_change_nothing() -> None:
    pieces = [bytes([one]) for one in text_of()]
    written = b"".join(with_node_paths(pieces, {12: "a", 123: "b"}))
    assert [one.get("str") for one in arguments(written)] == ["a", "b", None, None]


def test_without_paths_the_pieces_are_the_same() -> None:
    pieces = cut(text_of(), [5, 80])
    assert list(with_node_paths(pieces, {})) == pieces
    assert b"".join(with_node_paths(pieces, {99: "x"})) == text_of()


def test_a_name_that_looks_like_a_node_is_left_alone() -> None:
    name = 'x, "graph node id": 12'
    plain = text_of((name, name, name, name))
    written = b"".join(with_node_paths([plain], {12: "a"}))
    assert [event["name"] for event in json.loads(written)["traceEvents"]] == [name] * 4
    assert [one.get("str") for one in arguments(written)] == ["a", None, None, None]


def test_a_key_that_ends_like_a_nodes_is_left_alone() -> None:
    args = {'of "graph node id': 12, "graph node id": 12}
    plain = json.dumps({"traceEvents": [{"args": args}]}).encode()
    written = b"".join(with_node_paths([plain], {12: "a"}))
    assert written.count(b'"str"') == 1
    assert arguments(written) == [{**args, "str": "a"}]


def test_no_more_than_a_piece_is_held() -> None:
    def pieces() -> Any:
        nonlocal given_bytes
        for _ in range(50):
            given_bytes += 10_000
            yield b" " * 10_000

    given_bytes = taken = 0
    for piece in with_node_paths(pieces(), {1: "a"}):
        assert given_bytes - taken <= 20_000
        taken += len(piece)
    assert taken == given_bytes == 500_000
