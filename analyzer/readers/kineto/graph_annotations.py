"""The annotations of graph nodes that torch (2.13 and later) writes into traces of their replays.

A scope of `torch.cuda._graph_annotations.mark_kernels` annotates the nodes captured within it with
a text or a dictionary. torch merges dictionaries into the arguments of a node's GPU ops, a text
under the key `str`; other objects, and lists of several, are under `annotation`
(torch/cuda/_annotate_cuda_graph_trace.py, torch/profiler/_cupti_monitor_trace.py). Dictionaries may
have any keys: those read here are the module's full name (`module_fqn`, as torchtitan writes it)
and `name`.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from decodescope.analyzer.readers.columns import MAX_NAME
from decodescope.analyzer.readers.kineto.event import EventArgs, clean_text
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp
from decodescope.analyzer.trace import Int64s

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_NUMBERED = re.compile(r"\.(\d+)(?=\.|$)")
_DICT_KEYS = ("module_fqn", "str", "annotation", "name")
_values = msgspec.json.Decoder()


class AnnotationColumn:
    """Takes GPU ops batch by batch; the first op of a node decides on its annotation."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._nodes: dict[int, ReferenceOp] = {}
        self._seen: set[int] = set()

    def add(self, names: Sequence[str | None], args: Sequence[EventArgs], node_id: Int64s) -> None:
        """Append the annotations of one batch's ops; `node_id` is -1 for ops of no graph."""
        if not (node_id > 0).any():
            return
        first_at = {node: k for k, node in enumerate(reversed(node_id.tolist()))}
        for node in first_at.keys() - self._seen:
            index = len(names) - 1 - first_at[node]
            if node > 0 and (path := self._path(args[index])):
                name = (names[index] or "")[:MAX_NAME]
                self._nodes[node] = ReferenceOp(stream=0, name=name, path=path, node=node)
        self._seen |= first_at.keys()

    def reference(self) -> GraphReference | None:
        """The annotated nodes; None without any."""
        nodes = sorted(self._nodes.items())
        return GraphReference(tuple(op for _, op in nodes)) if nodes else None

    def _path(self, args: EventArgs) -> str:
        for text in (args.module_fqn, args.text, args.annotation, args.label):
            if text:
                key = bytes(text)
                if key not in self._known:
                    self._known[key] = _path_in(key)
                if self._known[key]:
                    return self._known[key]
        return ""


def _path_in(text: bytes) -> str:
    """The path in one JSON value; "" if it has none."""
    try:
        found = next(_texts_in(_values.decode(text)), "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return _as_path(clean_text(found))


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a value, of a list's last entry first: torch lets later entries win."""
    if isinstance(value, str):
        try:
            inside = _values.decode(value) if value[:1] in ("[", "{") else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            inside = None
        if isinstance(inside, list | dict):
            yield from _texts_in(inside)
        elif value:
            yield value
    elif isinstance(value, dict):
        for key in _DICT_KEYS:
            if isinstance(value.get(key), str) and value[key]:
                yield value[key]
    elif isinstance(value, list):
        for entry in reversed(value):
            if isinstance(entry, str | dict):
                yield from _texts_in(entry)


def _as_path(text: str) -> str:
    """A module's full name as a path ("layers.0.mlp": "layers.0/mlp"); other text as it is."""
    if not _MODULE.fullmatch(text):
        return text.strip("/")[:MAX_NAME]
    return _NUMBERED.sub("\0\\1", text).replace(".", "/").replace("\0", ".")[:MAX_NAME]
