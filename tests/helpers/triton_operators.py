"""Operators and loads of Triton's interpreter, in one call of NumPy where nothing is cast.

The interpreter finds the types anew at each `a + b`, and makes both operands as large as the result
before it asks NumPy: half of a kernel's time. Which function it asks, and what type the result has,
depends on the operands' types only. Here they are found once for each two types: the interpreter's
own way computes the first result, and what NumPy makes of the operands as they are must be the same
bits. Where it is not, or where operands differ in their elements, the interpreter's way stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_BITS: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_NUMBERS = (int, float)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an operator is for two types: `function`, and all of its result but the elements."""

    function: Callable[..., Any]
    number: Any
    result: dict[str, Any]
    elements: Any


def quick(name: str, slow: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `name` of a value, which is `slow` in the interpreter's own way."""
    if name == "__getitem__":
        return _index(slow)
    plain = name.strip("_")
    is_reversed = plain not in _FUNCTIONS
    function = _FUNCTIONS.get(plain) or _FUNCTIONS.get(plain.removeprefix("r"))
    return slow if function is None else _operator(plain, function, is_reversed, slow)


def _operator(
    name: str, function: Callable[..., Any], is_reversed: bool, slow: Callable[..., Any]
) -> Callable[..., Any]:
    from triton.language import constexpr, tensor
    from triton.runtime.interpreter import TensorHandle

    plans: dict[tuple[Any, ...], _Plan | None] = {}
    new = object.__new__

    def operate(self: Any, other: Any, _semantic: Any = None) -> Any:
        if other.__class__ is constexpr:
            other = other.value
        kind = other.__class__
        key: tuple[Any, ...]
        if kind is tensor:
            key = (self.type.name, other.type.name)
        elif kind in _NUMBERS:
            # 0.0 and -0.0 are equal.
            key = (self.type.name, kind, other or repr(other))
        else:
            return slow(self, other)
        if key not in plans:
            result = slow(self, other)
            plans[key] = _plan(name, function, is_reversed, self, other, result)
            return result
        plan = plans[key]
        if plan is None:
            return slow(self, other)
        own = self.handle
        theirs = other.handle.data if plan.number is None else plan.number
        data = plan.function(theirs, own.data) if is_reversed else plan.function(own.data, theirs)
        if data.dtype is not plan.elements:
            return slow(self, other)
        handle = new(TensorHandle)
        handle.data, handle.attr = data, {}
        handle.dtype = self.dtype if is_reversed else own.dtype.scalar
        result = new(tensor)
        result.__dict__ = {**plan.result, "handle": handle}
        return result

    return operate


def _plan(
    name: str, function: Callable[..., Any], is_reversed: bool, own: Any, other: Any, result: Any
) -> _Plan | None:
    """None where the interpreter's own way is needed."""
    is_number = isinstance(other, _NUMBERS)
    if own.dtype.is_ptr():
        if name != "add" or is_number or not other.dtype.is_int():
            return None
        function = _moved(max(1, own.dtype.element_ty.primitive_bitwidth // 8))
    elif (own.dtype.is_int1() and name not in _BITS) or not _is_as_it_is(name, own, other):
        return None
    number = _in_type(other, own) if is_number else None
    operands = [own.handle.data, other.handle.data if number is None else number]
    data = function(*reversed(operands)) if is_reversed else function(*operands)
    expected = result.handle.data
    if (data.dtype, data.shape) != (expected.dtype, expected.shape):
        return None
    if data.tobytes() != expected.tobytes():
        return None
    rest = {name: value for name, value in vars(result).items() if name != "handle"}
    return _Plan(function, number, rest, data.dtype)


def _moved(element_bytes: int) -> Callable[..., Any]:
    """Pointers by so many elements."""
    return lambda pointers, offsets: pointers + element_bytes * offsets.astype(np.uint64)


def _is_as_it_is(name: str, own: Any, other: Any) -> bool:
    """Whether neither operand is cast before they are computed with."""
    from triton.runtime.interpreter import interpreter_semantic as semantic

    is_number = isinstance(other, _NUMBERS)
    theirs = semantic.to_tensor_type(other) if is_number else other.dtype
    if theirs.is_ptr():
        return False
    both = semantic.computation_type_impl(own.dtype, False, theirs, is_number, "div" in name)
    return bool(both == own.dtype and (is_number or theirs == own.dtype))


def _in_type(number: float, like: Any) -> Any:
    from triton.runtime.interpreter import interpreter_semantic as semantic

    return semantic.scalar_constant(number, like.dtype).handle.data


def _index(slow: Callable[..., Any]) -> Callable[..., Any]:
    """`x[:, None]` and `x[None, :]` of a row."""
    from triton.language import tensor
    from triton.runtime.interpreter import TensorHandle

    types: dict[tuple[str, bool], dict[str, Any]] = {}
    new = object.__new__

    def index(self: Any, slices: Any, _semantic: Any = None) -> Any:
        is_column = slices == _COLUMN
        if not (is_column or slices == _ROW) or len(self.shape) != 1:
            return slow(self, slices)
        key = (self.type.name, is_column)
        if key not in types:
            result = slow(self, slices)
            types[key] = {name: value for name, value in vars(result).items() if name != "handle"}
            return result
        own = self.handle
        handle = new(TensorHandle)
        handle.data, handle.dtype, handle.attr = own.data[slices], own.dtype.scalar, {}
        result = new(tensor)
        result.__dict__ = {**types[key], "handle": handle}
        return result

    return index


def quick_load(slow: Callable[..., Any]) -> Callable[..., Any]:
    """A load of a block, with a mask of its shape and one number where that is false."""
    from triton.language import tensor
    from triton.runtime import interpreter

    handle_type, get = interpreter.TensorHandle, interpreter._interpreter.load
    loads: dict[tuple[str, str], tuple[dict[str, Any], Any, Any]] = {}
    others: dict[tuple[Any, ...], Any] = {}
    new = object.__new__

    def load(
        semantic: Any, ptr: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: bool
    ) -> Any:
        own = ptr.handle
        if (
            is_volatile
            or mask is None
            or ptr.shape is not mask.shape
            or own.data.shape != mask.handle.data.shape
            or not (other is None or other.shape == () != ptr.shape)
        ):
            return slow(semantic, ptr, mask, other, cache_policy, is_volatile)
        key = (ptr.type.name, mask.type.name)
        if key not in loads:
            result = slow(semantic, ptr, mask, other, cache_policy, is_volatile)
            rest = {name: value for name, value in vars(result).items() if name != "handle"}
            if result.dtype == ptr.dtype.element_ty:
                loads[key] = (rest, result.handle.data.dtype, result.handle.dtype)
            return result
        rest, elements, dtype = loads[key]
        number = b"" if other is None else other.handle.data.tobytes()
        place = (number, None if other is None else other.dtype.name, dtype.name, own.data.shape)
        if place not in others:
            one = 0 if other is None else semantic.cast(other, dtype).handle.data
            others[place] = np.full(own.data.shape, one, elements)
        handle = new(handle_type)
        handle.data = get(own.data, mask.handle.data, others[place], elements)
        handle.dtype, handle.attr = dtype, {}
        result = new(tensor)
        result.__dict__ = {**rest, "handle": handle}
        return result

    return load


_COLUMN, _ROW = (slice(None), None), (None, slice(None))
_FUNCTIONS = {**_ARITHMETIC, **_COMPARISONS, **_BITS}
