"""The kernel that a launch call names (`kernel` among its arguments), as ROCm's profilers write it.

It is the only name of a kernel that a graph capture recorded: nothing ran.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from decodescope.analyzer.readers.columns import Names
from decodescope.analyzer.readers.kineto.event import EventArgs, clean_text
from decodescope.analyzer.trace import CallKernels, HostEvents, Int32s

_NOT_A_NAME = -1
_texts = msgspec.json.Decoder(str)


class KernelColumn:
    """Takes calls batch by batch; `table` returns their rows."""

    def __init__(self, names: Names) -> None:
        self._parts: list[CallKernels] = []
        self._numbers = _Numbers(names)

    def add(self, args: Sequence[EventArgs], calls: HostEvents) -> None:
        """Append the calls of one batch that name a kernel."""
        mine = [index for index, arg in enumerate(args) if arg.kernel]
        if mine:
            numbers = [self._numbers[bytes(args[index].kernel)] for index in mine]
            part = CallKernels(calls.correlation[mine], np.array(numbers, dtype=np.int32))
            self._parts.append(part.take((part.name != _NOT_A_NAME) & (part.correlation > 0)))

    def table(self, names: Int32s) -> CallKernels:
        """The rows by correlation id; `names` holds the new number of each name."""
        rows = CallKernels.concatenate(self._parts)
        ids, first, count = np.unique(rows.correlation, return_index=True, return_counts=True)
        own = rows.take(first[count == 1])
        return replace(own, correlation=ids[count == 1], name=names[own.name])


class _Numbers(dict[bytes, int]):
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
