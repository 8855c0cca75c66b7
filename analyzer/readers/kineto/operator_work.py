"""Bytes and FLOPs of matrix products, from the shapes that torch.profiler records with
`record_shapes=True`.

FLOPs = 2 m n k (times the batch); bytes = every input and the output once, where an axis of
stride 0 (an expanded tensor) counts once. An operator with unknown shapes or types has no row: no
figure is better than a guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Annotated

import msgspec
import numpy as np

from decodescope.analyzer.readers.kineto.event import EventArgs, decoded
from decodescope.analyzer.trace import Bools, HostEvents, OperatorWork

WORK_KEY = "decodescope_work"
_LARGEST = 1 << 62
_LINEAR = "aten::linear"
# The index of the first matrix among the arguments, and of the one that an `out=` variant writes.
_MATRICES = {
    "aten::mm": (0, 2),
    "aten::bmm": (0, 2),
    "aten::addmm": (1, 5),
    "aten::baddbmm": (1, 5),
    "aten::_scaled_mm": (0, 8),
    _LINEAR: (0, 3),
}
_SCALED_OUT_DTYPE = 6
_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "long", "long int", "c10::complex<float>"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("c10::BFloat16", "c10::Half", "short", "short int"), 2),
    **dict.fromkeys(("signed char", "unsigned char", "bool"), 1),
    **dict.fromkeys(
        ("c10::Float8_e4m3fn", "c10::Float8_e5m2", "c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz"),
        1,
    ),
}
# c10::ScalarType numbers of the types that a scaled product can return.
_DTYPE_BYTES = {"5": 2, "6": 4, "15": 2, "23": 1, "24": 1}

_Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
WorkRows = list[tuple[_Count, _Count, _Count]]
_shapes = msgspec.json.Decoder(list[list[int]], strict=False)
_texts = msgspec.json.Decoder(list[str])


def work_rows(work: OperatorWork) -> WorkRows:
    """The rows that an exported trace has under `WORK_KEY`, since its operators have no shapes."""
    columns = (work.external_id.tolist(), work.bytes.tolist(), work.flops.tolist())
    return list(zip(*columns, strict=True))


def stored_work(rows: WorkRows) -> OperatorWork:
    """The work from `work_rows`, sorted by external id; the first row of each id counts."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    columns = columns[np.unique(columns[:, 0], return_index=True)[1]]
    return OperatorWork(*np.ascontiguousarray(columns.T))


@dataclass(frozen=True, slots=True)
class _Tensor:
    shape: list[int]
    element_bytes: int
    bytes: int


class WorkColumns:
    """Takes operator calls batch by batch; `work()` returns their rows."""

    def __init__(self) -> None:
        self._work_of = cache(_bytes_and_flops)
        self._events: list[HostEvents] = []
        self._rows: list[tuple[int, int, bool]] = []

    def add(
        self, names: Sequence[str | None], args: Sequence[EventArgs], events: HostEvents
    ) -> None:
        """Append one batch of operators: their names, arguments and columns."""
        products: list[int] = []
        for index, name in enumerate(names):
            if name in _MATRICES and (arg := args[index]).input_dims:
                texts = (arg.input_dims, arg.input_types, arg.input_strides, arg.concrete_inputs)
                if (work := self._work_of(name, *map(bytes, texts))) is not None:
                    products.append(index)
                    self._rows.append((*work, name == _LINEAR))
        if products:
            self._events.append(events.take(np.array(products)))

    def work(self) -> OperatorWork:
        """The rows by external id, without rows that share their id, and without `linear` if the
        product inside it has a row."""
        events = HostEvents.concatenate(self._events)
        moved, flops, is_linear = np.array(self._rows, dtype=np.int64).reshape(-1, 3).T
        kept = np.flatnonzero(~_wraps_another(events, is_linear == 1))
        external_id = events.external_id[kept]
        ids, first, count = np.unique(external_id, return_index=True, return_counts=True)
        own = kept[first[(count == 1) & (ids > 0)]]
        return OperatorWork(events.external_id[own], moved[own], flops[own])


def _wraps_another(events: HostEvents, is_linear: Bools) -> Bools:
    """Which events are `linear` with another event inside it on the same thread."""
    wraps = np.zeros(len(events), dtype=np.bool_)
    for rows in events.by_thread():
        outer = rows[is_linear[rows]]
        inner = np.sort(events.start_ns[rows[~is_linear[rows]]])
        following = np.searchsorted(inner, events.start_ns[outer])
        inside = following < len(inner)
        wraps[outer[inside]] = inner[following[inside]] < events.end_ns[outer[inside]]
    return wraps


def _bytes_and_flops(
    name: str, dims: bytes, types: bytes, strides: bytes, concrete: bytes
) -> tuple[int, int] | None:
    """The bytes and FLOPs of a call from its name and the JSON of its inputs' sizes, types and
    strides, and of all inputs; None if they are not known."""
    shapes, type_names = decoded(_shapes, dims), decoded(_texts, types)
    steps = decoded(_shapes, strides) if strides else []
    if shapes is None or type_names is None or steps is None:
        return None
    tensors = _tensors(shapes, type_names, steps)
    at, out = _MATRICES[name]
    if tensors is None or len(tensors) < at + 2:
        return None
    left, right = tensors[at], tensors[at + 1]
    if left is None or right is None:
        return None
    shape = _product_shape(name, left.shape, right.shape)
    if shape is None:
        return None
    output_bytes = left.element_bytes
    if name == "aten::_scaled_mm" and concrete:
        arguments = decoded(_texts, concrete)
        if arguments is None:
            return None
        dtype = "".join(arguments[_SCALED_OUT_DTYPE : _SCALED_OUT_DTYPE + 1])
        output_bytes = _DTYPE_BYTES.get(dtype, output_bytes)
    total = sum(tensor.bytes for tensor in tensors if tensor is not None)
    if len(tensors) <= out or tensors[out] is None:
        total += prod(shape) * output_bytes
    flops = 2 * prod(shape) * left.shape[-1]
    return (total, flops) if max(total, flops) < _LARGEST else None


def _product_shape(name: str, left: list[int], right: list[int]) -> list[int] | None:
    if name == _LINEAR:
        if not left or len(right) != 2 or left[-1] != right[1]:
            return None
        return [*left[:-1], right[0]]
    batched = name in ("aten::bmm", "aten::baddbmm")
    if len(left) != 2 + batched or len(right) != len(left):
        return None
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        return None
    return [*left[:-1], right[-1]]


def _tensors(
    shapes: list[list[int]], types: list[str], strides: list[list[int]]
) -> list[_Tensor | None] | None:
    """The tensors among the arguments, with None for other arguments; None if one is unknown."""
    if len(shapes) != len(types):
        return None
    tensors: list[_Tensor | None] = []
    for index, (shape, type_name) in enumerate(zip(shapes, types, strict=True)):
        element_bytes = _ELEMENT_BYTES.get(type_name)
        if element_bytes is None or any(size < 0 for size in shape):
            if shape:
                return None
            tensors.append(None)
            continue
        stride = strides[index] if index < len(strides) else []
        if len(stride) != len(shape):
            stride = [1] * len(shape)
        elements = prod(
            size if step or not size else 1 for size, step in zip(shape, stride, strict=True)
        )
        tensors.append(_Tensor(shape, element_bytes, elements * element_bytes))
    return tensors
