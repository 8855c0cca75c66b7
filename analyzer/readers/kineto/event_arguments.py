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
under the key `str`, later (pytorch/pytorch#194854) under `name`; other objects, and lists of
several, are under `annotation`. Dictionaries may have any keys: those read here are the module's
full name (`module_fqn`, as torchtitan writes it) and `name`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.readers.kineto.event import EventArgs, clean_text, decoded
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

# Kineto's take about 40 bytes; text that is kept for each shape must stay small. A text of this
# length was cut, and is no shape.
_CUT_SHAPE_BYTES = 257
# Numbers in broken files come as text.
_Key = TypeVar("_Key", bound=Sequence[Any])
_Value = TypeVar("_Value")
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


class Parsed(dict[_Key, _Value]):
    """The value of each key that is asked for, which `parse` computes once."""

    def __init__(self, parse: Callable[[_Key], _Value]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, key: _Key) -> _Value:
        value = self[key] = self._parse(key)
        return value


class ShapeColumn(Shapes):
    """Launch shapes, numbered by their text, so that each distinct one is parsed once."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = Parsed(self._number)

    def index(self, args: Sequence[EventArgs]) -> Int32s:
        texts = (
            b"\0".join((arg.grid, arg.block, arg.registers, arg.shared_memory))[:_CUT_SHAPE_BYTES]
            for arg in args
        )
        return np.fromiter(map(self._numbers.__getitem__, texts), dtype=np.int32, count=len(args))

    def _number(self, text: bytes) -> int:
        if len(text) == _CUT_SHAPE_BYTES:
            return NOT_GIVEN
        grid, block, registers, shared_memory = text.split(b"\0")
        return self.of(
            decoded(_extents, grid),
            decoded(_extents, block),
            decoded(_amounts, registers),
            decoded(_amounts, shared_memory),
        )


class MessageRows:
    """Collects the messages of batches of GPU events; each distinct one is parsed once.

    `table` holds the distinct messages, in order of their numbers.
    """

    def __init__(self) -> None:
        self.table: list[CollectiveMessage] = []
        self._numbers = Parsed(self._number)
        self._parts: list[CollectiveMessages] = []

    def add(self, args: Sequence[EventArgs], ops: GpuOps) -> None:
        """Add the events that say what they exchange; `args` are those of `ops`."""
        rows = [row for row, arg in enumerate(args) if arg.collective]
        if not rows:
            return
        texts = (
            (arg.collective, arg.in_elements, arg.dtype, arg.group_ranks)
            for arg in (args[row] for row in rows)
        )
        numbers = np.array([self._numbers[tuple(map(bytes, fields))] for fields in texts])
        chosen = ops.take(np.array(rows))
        self._parts.append(
            CollectiveMessages(chosen.start_ns, chosen.device, chosen.stream, numbers)
        )

    def rows(self) -> CollectiveMessages:
        """All of them, sorted by start, device and stream."""
        joined = CollectiveMessages.concatenate(self._parts)
        return joined.take(np.lexsort((joined.stream, joined.device, joined.start_ns)))

    def _number(self, texts: tuple[bytes, ...]) -> int:
        small = (text if len(text) <= _MAX_MESSAGE_BYTES else b"" for text in texts)
        collective, in_elements, dtype, ranks = small
        elements = decoded(_amounts, in_elements)
        self.table.append(
            CollectiveMessage(
                collective=decoded(_texts, collective) or "",
                in_elements=elements
                if elements is not None and 0 <= elements <= _LARGEST
                else None,
                dtype=decoded(_texts, dtype) or "",
                group=decoded(_texts, ranks) or "",
            )
        )
        return len(self.table) - 1


class KernelColumn:
    """Takes calls batch by batch; `table` returns their rows."""

    def __init__(self, names: Names) -> None:
        self._parts: list[CallKernels] = []
        self._names = names
        self._numbers = Parsed(self._number)

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

    def _number(self, text: bytes) -> int:
        name = clean_text(decoded(_texts, text) or "")
        return self._names[name] if name else _NOT_A_NAME


class AnnotationColumn:
    """Takes GPU ops batch by batch; the first op of a node decides on its annotation."""

    def __init__(self) -> None:
        self._paths = Parsed(_path_in)
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
        nodes = sorted(self._nodes.items())
        return GraphReference(tuple(op for _, op in nodes)) if nodes else None

    def _path(self, args: EventArgs) -> str:
        texts = filter(None, (args.module_fqn, args.text, args.annotation, args.label))
        return next(filter(None, (self._paths[bytes(text)] for text in texts)), "")


def _path_in(text: bytes) -> str:
    """The path in one JSON value: a module's full name as a path ("layers.0.mlp": "layers.0/mlp"),
    other text as it is; "" if it has none."""
    name = clean_text(next(_texts_in(decoded(_values, text)), ""))
    if not _MODULE.fullmatch(name):
        return name.strip("/")[:MAX_NAME]
    return _NUMBERED.sub("\0\\1", name).replace(".", "/").replace("\0", ".")[:MAX_NAME]


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a value, of a list's last entry first: torch lets later entries win."""
    if isinstance(value, str):
        inside = decoded(_values, value) if value[:1] in ("[", "{") else None
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
