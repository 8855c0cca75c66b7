"""Arguments of events: launch shapes, messages of collectives, launched kernels, annotations.

Kineto writes the shape of a kernel as `grid`, `block`, `registers per thread` and `shared memory`
(static and dynamic). PyTorch gives the kernels of NCCL and RCCL their messages: the profiler copies
them from the operator `record_param_comms` (pytorch/pytorch, torch/csrc/profiler/util.cpp,
saveNcclMeta); graph replays have none. ROCm's profilers write the name of a kernel as the argument
`kernel` of its launch call: the only name of a kernel that a graph capture recorded, as nothing
ran.

torch 2.13 and later writes the annotations of graph nodes into traces of their replays. A scope of
`torch.cuda._graph_annotations.mark_kernels` annotates the nodes captured within it with a text or a
dictionary. torch merges dictionaries into the arguments of a node's GPU ops, a text
under the key `str`; other objects, and lists of several, are under `annotation`
(torch/cuda/_annotate_cuda_graph_trace.py, torch/profiler/_cupti_monitor_trace.py). Dictionaries may
have any keys: those read here are the module's full name (`module_fqn`, as torchtitan writes it)
and `name`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.readers.kineto.event import EventArgs, clean_text
from decodescope.analyzer.readers.trace_columns import MAX_NAME, NOT_GIVEN, Names, Shapes
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp
from decodescope.analyzer.trace import (
    CallKernels,
    CollectiveMessage,
    CollectiveMessages,
    GpuOps,
    HostEvents,
    Int32s,
    Int64s,
)

# Kineto's take about 40 bytes; text that is kept for each shape must stay small.
_MAX_SHAPE_BYTES = 256
_Value = TypeVar("_Value")
# Numbers in broken files come as text.
_extents = msgspec.json.Decoder(list[int], strict=False)
_amounts = msgspec.json.Decoder(int, strict=False)
# A list of ranks is cut by the profiler; text that is kept for each message must stay small.
_MAX_MESSAGE_BYTES = 512
_LARGEST = 1 << 48
_texts = msgspec.json.Decoder(str)
_NOT_A_NAME = -1
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_NUMBERED = re.compile(r"\.(\d+)(?=\.|$)")
_DICT_KEYS = ("module_fqn", "str", "annotation", "name")
_values = msgspec.json.Decoder()


class ShapeColumn:
    """Numbers shapes by their text, so that each distinct one is parsed once."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self._by_text = _ShapeNumbers(self.shapes)

    def index(self, args: Iterable[EventArgs]) -> Int32s:
        """The shape of each event, `NOT_GIVEN` if it has none."""
        texts = [
            b"\0".join((arg.grid, arg.block, arg.registers, arg.shared_memory)) for arg in args
        ]
        numbers = map(self._by_text.__getitem__, texts)
        return np.fromiter(numbers, dtype=np.int32, count=len(texts))


class _ShapeNumbers(dict[bytes, int]):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self._shapes = shapes

    def __missing__(self, text: bytes) -> int:
        if len(text) > _MAX_SHAPE_BYTES:
            return NOT_GIVEN
        grid, block, registers, shared_memory = text.split(b"\0")
        self[text] = number = self._shapes.of(
            _decoded(_extents, grid),
            _decoded(_extents, block),
            _decoded(_amounts, registers),
            _decoded(_amounts, shared_memory),
        )
        return number


def _decoded(decoder: msgspec.json.Decoder[_Value], text: bytes) -> _Value | None:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class MessageRows:
    """Collects the messages of batches of GPU events; each distinct one is parsed once."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, int] = {}
        self._table: list[CollectiveMessage] = []
        self._parts: list[CollectiveMessages] = []

    def add(self, args: Sequence[EventArgs], ops: GpuOps) -> None:
        """Add the events that say what they exchange; `args` are those of `ops`."""
        rows = [row for row, arg in enumerate(args) if arg.collective]
        if not rows:
            return
        numbers = [self._number(args[row]) for row in rows]
        chosen = ops.take(np.array(rows))
        self._parts.append(
            CollectiveMessages(chosen.start_ns, chosen.device, chosen.stream, np.array(numbers))
        )

    def rows(self) -> CollectiveMessages:
        """All of them, sorted by start, device and stream."""
        joined = CollectiveMessages.concatenate(self._parts)
        return joined.take(np.lexsort((joined.stream, joined.device, joined.start_ns)))

    def table(self) -> tuple[CollectiveMessage, ...]:
        """The distinct messages, in order of their numbers."""
        return tuple(self._table)

    def _number(self, arg: EventArgs) -> int:
        parts = (arg.collective, arg.in_elements, arg.dtype, arg.group_ranks)
        text = b"\0".join(parts)
        number = self._by_text.get(text)
        if number is None:
            number = self._by_text[text] = len(self._table)
            small = [part if len(part) <= _MAX_MESSAGE_BYTES else b"" for part in parts]
            collective, in_elements, dtype, ranks = small
            self._table.append(
                CollectiveMessage(
                    collective=_text(collective),
                    in_elements=_amount(in_elements),
                    dtype=_text(dtype),
                    group=_text(ranks),
                )
            )
        return number


def _text(text: bytes) -> str:
    try:
        return _texts.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _amount(text: bytes) -> int | None:
    try:
        value = _amounts.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if 0 <= value <= _LARGEST else None


class KernelColumn:
    """Takes calls batch by batch; `table` returns their rows."""

    def __init__(self, names: Names) -> None:
        self._parts: list[CallKernels] = []
        self._numbers = _NameNumbers(names)

    def add(self, args: Sequence[EventArgs], calls: HostEvents) -> None:
        """Append the calls of one batch that name a kernel."""
        rows = [index for index, arg in enumerate(args) if arg.kernel]
        if rows:
            numbers = [self._numbers[bytes(args[index].kernel)] for index in rows]
            part = CallKernels(calls.correlation[rows], np.array(numbers, dtype=np.int32))
            self._parts.append(part.take((part.name != _NOT_A_NAME) & (part.correlation > 0)))

    def table(self, names: Int32s) -> CallKernels:
        """The rows by correlation id; `names` holds the new number of each name."""
        parts = CallKernels.concatenate(self._parts)
        ids, first, count = np.unique(parts.correlation, return_index=True, return_counts=True)
        single = parts.take(first[count == 1])
        return replace(single, correlation=ids[count == 1], name=names[single.name])


class _NameNumbers(dict[bytes, int]):
    """The number of each name, which is decoded once."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, text: bytes) -> int:
        try:
            name = clean_text(_texts.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            name = ""
        self[text] = number = self._names.of_text(name) if name else _NOT_A_NAME
        return number


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
