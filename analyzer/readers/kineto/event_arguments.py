"""Arguments of events: launch shapes, messages of collectives, and kernels that launch calls name.

Kineto writes the shape of a kernel as `grid`, `block`, `registers per thread` and `shared memory`
(static and dynamic). PyTorch gives the kernels of NCCL and RCCL their messages: the profiler copies
them from the operator `record_param_comms` (pytorch/pytorch, torch/csrc/profiler/util.cpp,
saveNcclMeta); graph replays have none. ROCm's profilers write the name of a kernel as the argument
`kernel` of its launch call: the only name of a kernel that a graph capture recorded, as nothing
ran.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.readers.columns import NOT_GIVEN, Names, Shapes
from decodescope.analyzer.readers.kineto.event import EventArgs, clean_text
from decodescope.analyzer.trace import (
    CallKernels,
    CollectiveMessage,
    GpuOps,
    HostEvents,
    Int32s,
    Messages,
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
        self._parts: list[Messages] = []

    def add(self, args: Sequence[EventArgs], ops: GpuOps) -> None:
        """Add the events that say what they exchange; `args` are those of `ops`."""
        rows = [row for row, arg in enumerate(args) if arg.collective]
        if not rows:
            return
        numbers = [self._number(args[row]) for row in rows]
        chosen = ops.take(np.array(rows))
        self._parts.append(
            Messages(chosen.start_ns, chosen.device, chosen.stream, np.array(numbers))
        )

    def rows(self) -> Messages:
        """All of them, sorted by start, device and stream."""
        joined = Messages.concatenate(self._parts)
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
