"""The launch shapes of kernels, from the arguments `grid`, `block`, `registers per thread` and
`shared memory` (static and dynamic) that Kineto writes."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.readers.columns import NOT_GIVEN, Shapes
from decodescope.analyzer.readers.kineto.event import EventArgs
from decodescope.analyzer.trace import Int32s

# Kineto's take about 40 bytes; text that is kept for each shape must stay small.
_MAX_TEXT_BYTES = 256
_Value = TypeVar("_Value")
# Numbers in broken files come as text.
_extents = msgspec.json.Decoder(list[int], strict=False)
_amounts = msgspec.json.Decoder(int, strict=False)


class ShapeColumn:
    """Numbers shapes by their text, so that each distinct one is parsed once."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self._by_text = _Numbers(self.shapes)

    def index(self, args: Iterable[EventArgs]) -> Int32s:
        """The shape of each event, `NOT_GIVEN` if it has none."""
        texts = [
            b"\0".join((arg.grid, arg.block, arg.registers, arg.shared_memory)) for arg in args
        ]
        numbers = map(self._by_text.__getitem__, texts)
        return np.fromiter(numbers, dtype=np.int32, count=len(texts))


class _Numbers(dict[bytes, int]):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self._shapes = shapes

    def __missing__(self, text: bytes) -> int:
        if len(text) > _MAX_TEXT_BYTES:
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
