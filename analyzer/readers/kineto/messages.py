"""What collectives exchange, from the arguments that PyTorch gives to the kernels of NCCL and RCCL.

The profiler copies them from the operator `record_param_comms` to its kernel (pytorch/pytorch,
torch/csrc/profiler/util.cpp, saveNcclMeta); graph replays have none.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from decodescope.analyzer.readers.kineto.event import EventArgs
from decodescope.analyzer.trace import CollectiveMessage, GpuOps, Messages

# A list of ranks is cut by the profiler; text that is kept for each message must stay small.
_MAX_TEXT_BYTES = 512
_LARGEST = 1 << 48
_texts = msgspec.json.Decoder(str)
_numbers = msgspec.json.Decoder(int, strict=False)


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
            small = [part if len(part) <= _MAX_TEXT_BYTES else b"" for part in parts]
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
        value = _numbers.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if 0 <= value <= _LARGEST else None
