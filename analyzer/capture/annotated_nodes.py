"""Writes the paths of graph nodes into the text of a Chrome trace while it passes by.

torch's profiler gives the ops of a graph replay the number of their node (`graph node id`) and no
name. A path follows that number as the argument `str`, which is how torch's own tool merges a text
that annotates a node, so viewers show it among an op's arguments.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

# What stands before a key is no quote's backslash, so a text inside a string is never one.
_NODE = re.compile(rb'[{,\s]"graph node id"\s{0,8}:\s{0,8}(\d{1,20})(?!\d)')
_LONGEST_MATCH = 64


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
        for found in _NODE.finditer(held):
            if found.start() >= whole:
                break
            yield held[done : found.end()] + added.get(found[1], b"")
            done = found.end()
        whole = max(done, whole)
        yield held[done:whole]
        held = held[whole:]
    yield _NODE.sub(lambda found: found[0] + added.get(found[1], b""), held)
