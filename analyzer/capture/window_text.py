"""Adds members and the paths of graph nodes to the text of a Chrome trace, one piece at a time.

torch's profiler gives the ops of a graph replay the number of their node (`graph node id`) and no
name. A path follows that number as the argument `str`, which is how torch's own tool merges a text
that annotates a node, so viewers show it among an op's arguments.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import BinaryIO

import msgspec

# What stands before a key is no quote's backslash, so a text inside a string is never one.
_NODE = re.compile(rb'[{,\s]"graph node id"\s{0,8}:\s{0,8}(\d{1,20})(?!\d)')
_LONGEST_MATCH = 64
_PIECE_BYTES = 1 << 20


def with_members(members: Mapping[str, object], events: BinaryIO) -> Iterator[bytes]:
    """The text of a trace, with `members` as its first members.

    The profiler's own function for adding metadata replaces every backslash by a slash, which
    breaks the JSON of a name that contains a quotation mark.
    """
    before, brace, rest = events.read(1 << 10).partition(b"{")
    assert brace == b"{" + before.strip(), "a Chrome trace is one JSON object"
    yield msgspec.json.encode(members)[:-1] + b"," + rest
    yield from iter(partial(events.read, _PIECE_BYTES), b"")


def with_node_paths(pieces: Iterable[bytes], paths: Mapping[int, str]) -> Iterator[bytes]:
    """The text in pieces, in which the events of the nodes in `paths` have their paths.

    Without paths, the pieces themselves. At most one piece is held.
    """
    if not paths:
        yield from pieces
        return
    added = {b"%d" % node: b', "str": ' + json.dumps(path).encode() for node, path in paths.items()}
    held = b""
    for piece in pieces:
        held += piece
        # A number may go on in the next piece.
        done = 0
        whole = max(len(held) - _LONGEST_MATCH, 0)
        for match in _NODE.finditer(held):
            if match.start() >= whole:
                break
            yield held[done : match.end()] + added.get(match[1], b"")
            done = match.end()
        whole = max(done, whole)
        yield held[done:whole]
        held = held[whole:]
    yield _NODE.sub(lambda match: match[0] + added.get(match[1], b""), held)
