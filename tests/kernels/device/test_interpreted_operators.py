"""Operators that ask NumPy at once give what Triton's interpreter gives, whatever the elements."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from tests.helpers.triton_operators import quick, quick_load

if torch.cuda.is_available():
    pytest.skip("nothing is interpreted", allow_module_level=True)

import triton.language as tl
from triton.runtime.interpreter import TensorHandle
from triton.runtime.interpreter import interpreter_semantic as semantic

TYPES = [
    (tl.int1, np.bool_),
    (tl.int8, np.int8),
    (tl.int32, np.int32),
    (tl.int64, np.int64),
    (tl.uint8, np.uint8),
    (tl.uint32, np.uint32),
    (tl.float16, np.float16),
    (tl.float32, np.float32),
    (tl.bfloat16, np.uint16),
    (tl.pointer_type(tl.float16), np.uint64),
]
SLOW: dict[str, Callable[..., Any]] = {
    "__add__": lambda one, other: semantic.add(one, other, False),
    "__rsub__": lambda one, other: semantic.sub(other, one, False),
    "__mul__": lambda one, other: semantic.mul(one, other, False),
    "__truediv__": semantic.truediv,
    "__rtruediv__": lambda one, other: semantic.truediv(other, one),
    "__lt__": semantic.less_than,
    "__ne__": semantic.not_equal,
    "__and__": semantic.and_,
    "__xor__": semantic.xor_,
    "__lshift__": semantic.shl,
}
SHAPES = [((), ()), ((), (4,)), ((2, 4), (4,)), ((2, 1), (1, 4))]
NUMBERS = [3, -1, True, 2**31, 0.0, -0.0, 1e-300, float("nan")]


def value(kind: tuple[Any, Any], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Any elements of a type."""
    dtype, elements = kind
    bits = (
        rng.integers(0, 2, shape or (1,))
        if dtype is tl.int1
        else rng.integers(0, 2**63, shape or (1,))
    )
    unsigned = bits.astype(f"u{np.dtype(elements).itemsize}")
    data = unsigned.view(elements)
    return tl.tensor(
        TensorHandle(data, dtype), tl.block_type(dtype, list(shape)) if shape else dtype
    )


def outcome(operator: Callable[..., Any], one: Any, other: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            found = operator(one, other)
        except Exception as error:
            return type(error)
    data = found.handle.data
    return found.type, found.dtype, found.handle.dtype, data.dtype, data.shape, data.tobytes()


@pytest.mark.parametrize("name", SLOW)
def test_any_two_operands_give_the_same_bits(name: str) -> None:
    rng, slow = np.random.default_rng(3), SLOW[name]
    asked: list[Any] = []
    operator = quick(name, lambda *both: asked.append(both) or slow(*both))
    calls = 0
    for kind, (shape, other_shape) in itertools.product(TYPES, SHAPES):
        for other in (*TYPES, *NUMBERS):
            # The first time in the interpreter's own way.
            for _ in range(2):
                right = value(other, other_shape, rng) if isinstance(other, tuple) else other
                operands = value(kind, shape, rng), right
                assert outcome(operator, *operands) == outcome(slow, *operands)
                calls += 1
    assert len(asked) < calls - 20


def test_rows_and_columns_of_a_row_have_its_elements() -> None:
    rng = np.random.default_rng(3)
    index = quick("__getitem__", lambda one, slices: semantic.expand_dims(one, slices.index(None)))
    for slices in ((slice(None), None), (None, slice(None))):
        for _ in range(2):
            one = value(TYPES[2], (4,), rng)
            found = index(one, slices)
            assert (found.type.shape, found.dtype) == (found.handle.data.shape, tl.int32)
            assert np.array_equal(found.handle.data, one.handle.data[slices])


@pytest.mark.parametrize(("dtype", "elements"), [(tl.int32, np.int32), (tl.float16, np.float16)])
def test_loads_are_of_what_lies_there_or_the_other_number(dtype: Any, elements: Any) -> None:
    rng, asked = np.random.default_rng(3), 0
    slow = type(semantic).load

    def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return slow(*given)

    load = quick_load(counted)
    block = tl.block_type(tl.pointer_type(dtype), [2, 4])
    memory, places = rng.integers(-9, 9, 8).astype(elements), rng.permutation(8).reshape(2, 4)
    pointers = (memory.ctypes.data + memory.itemsize * places).astype(np.uint64)
    ptr = tl.tensor(TensorHandle(pointers, block.scalar), block)
    policy = SimpleNamespace(_to_ir=lambda builder: None)
    for shape, number in itertools.product([(2, 4), (2, 1), (2, 4), ()], [None, 7, -1, 0.0, -0.0]):
        mask = value(TYPES[0], shape, rng)
        other = None if number is None else semantic.to_tensor(number)
        found = load(semantic, ptr, mask, other, policy, False)
        expected = memory[places]
        expected[~np.broadcast_to(mask.handle.data, (2, 4))] = 0 if number is None else number
        assert (found.type, found.dtype) == (tl.block_type(dtype, [2, 4]), dtype)
        assert found.handle.data.tobytes() == expected.tobytes()
    assert asked == 1 + 2 * 5
