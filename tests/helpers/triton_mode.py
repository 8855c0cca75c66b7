"""Without a GPU, kernels run in Triton's interpreter. Import this before anything of Triton."""

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import triton_operators

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")


def _patch_language_once() -> None:
    """The interpreter replaces the functions of `triton.language` for a launch and at every call of
    a device function, and puts them back after the launch. In this process nothing but the
    interpreter uses them, so they are replaced once: that takes about half of the time.

    What differs between functions is only which of Triton's modules their own module imports.
    """
    from triton import language
    from triton.runtime import interpreter

    patch: Callable[[Any], Any] = interpreter._patch_lang
    scopes: dict[tuple[bool, ...], Any] = {}

    @cache
    def visible_in(module: str) -> tuple[bool, ...]:
        names = vars(sys.modules[module]).values()
        return tuple(any(one is lang for one in names) for lang in (language, language.core))

    def patch_once(function: Any) -> Any:
        visible = visible_in(function.__module__)
        if visible not in scopes:
            scopes[visible] = patch(function)
        # What a launch puts back: nothing.
        return None if scopes[visible] is None else type(scopes[visible])()

    interpreter._patch_lang = patch_once


def _leave_unused_checks_out() -> None:
    """The interpreter computes every sum and product of integers again in 64 bits, and compares it
    with the limits of its type only if `debug` is on: a third of the time."""
    from triton.runtime import interpreter

    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


def _call_builtins_directly() -> None:
    """Two functions around each function of the language say that it needs the interpreter, which
    always gives it: a tenth of the time."""
    from triton.language.core import builtin, tensor
    from triton.runtime import interpreter

    around = builtin(len).__code__

    def patch(obj: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        inner = member.__wrapped__ if member.__code__ is around else member

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter.interpreter_semantic
            return inner(*args, **kwargs)

        scope.set_attr(obj, name, triton_operators.quick(name, call) if obj is tensor else call)

    interpreter._patch_attr = patch


def _load_directly() -> None:
    """The interpreter makes a block of the number that stands for what is not loaded: a tenth of
    the time."""
    from triton.language.semantic import TritonSemantic

    TritonSemantic.load = triton_operators.quick_load(TritonSemantic.load)


def _remember_parameters() -> None:
    """The interpreter looks at a kernel's parameters three times for every launch: a twentieth of
    the time."""
    from triton.runtime import interpreter

    signature = cache(inspect.signature)

    def called_with(function: Any, *given: Any, **named: Any) -> dict[str, Any]:
        bound = signature(function).bind(*given, **named)
        bound.apply_defaults()
        return bound.arguments

    quick = {
        "getcallargs": called_with,
        "getfullargspec": cache(inspect.getfullargspec),
        "get_annotations": cache(inspect.get_annotations),
    }
    interpreter.inspect = SimpleNamespace(**vars(inspect) | quick)


def _remember_types() -> None:
    """The interpreter makes the type and the shape of every value anew, of a dozen objects: a third
    of the time. Few differ, and none changes, so there is one of each."""
    from triton.language import core
    from triton.language.semantic import TritonSemantic

    make_type, make_value = core.block_type.__init__, core.tensor.__init__
    broadcast, is_equal = TritonSemantic.broadcast_impl_value, core.dtype.__eq__
    unwrap, wraps = core._unwrap_if_constexpr, (core.constexpr, core.tuple, tuple, list)
    types: dict[tuple[Any, ...], Any] = {}
    values: dict[tuple[int, ...], dict[str, Any]] = {}

    def block_type(cls: Any, element_ty: Any, shape: Any) -> Any:
        sizes = tuple([one.value if isinstance(one, core.constexpr) else one for one in shape])
        key = (element_ty.name, sizes)
        if key not in types or types[key].element_ty is not element_ty:
            types[key] = object.__new__(cls)
            make_type(types[key], element_ty, shape)
            types[key].sizes = sizes
        return types[key]

    def tensor(self: Any, handle: Any, type: Any) -> None:
        sizes = type.sizes if type.is_block() else ()
        if sizes not in values:
            make_value(self, handle, type)
            values[sizes] = dict(self.__dict__)
        self.__dict__.update(values[sizes], handle=handle, type=type, dtype=type.scalar)

    def broadcast_once(self: Any, left: Any, right: Any) -> Any:
        return (left, right) if left.shape is right.shape else broadcast(self, left, right)

    core.block_type.__new__, core.block_type.__init__ = block_type, lambda *_: None
    core.tensor.__init__ = tensor
    core.dtype.__eq__ = lambda self, other: (
        self is other
        or (self.name == other.name if isinstance(other, core.dtype) else is_equal(self, other))
    )
    core._unwrap_if_constexpr = lambda value: unwrap(value) if isinstance(value, wraps) else value
    TritonSemantic.broadcast_impl_value = broadcast_once


def _remember_operands() -> None:
    """The interpreter makes a block of every number that meets one, and applies the rules of casts
    to operands that need none: a quarter of the time."""
    from triton.language import core
    from triton.language.semantic import TritonSemantic

    check = TritonSemantic.binary_op_type_checking_impl
    replaced: dict[tuple[Any, ...], list[Any]] = {}

    def check_once(self: Any, left: Any, right: Any, *flags: bool, **named: bool) -> Any:
        operands = (left, right)
        is_number = [not isinstance(each, core.tensor) for each in operands]
        # A number is told from others by its text: 0.0 from -0.0.
        names = [
            (type(each), repr(each)) if number else each.type.name
            for each, number in zip(operands, is_number, strict=True)
        ]
        key = (*names, flags, *named)
        if key not in replaced:
            checked = check(self, left, right, *flags, **named)
            new = [
                None if after is before else after
                for before, after in zip(operands, checked, strict=True)
            ]
            if any(each is not None and not is_number[i] for i, each in enumerate(new)):
                return checked
            replaced[key] = new
        return [
            given if each is None else each
            for given, each in zip(operands, replaced[key], strict=True)
        ]

    TritonSemantic.binary_op_type_checking_impl = check_once


def _check_sizes_once() -> None:
    """The interpreter compares the bits of an element with its type's for every value."""
    from triton.runtime.interpreter import TensorHandle

    check = TensorHandle.__post_init__
    right: set[tuple[int, str]] = set()

    def check_once(self: Any) -> None:
        key = (self.data.itemsize, self.dtype.name)
        if key not in right:
            check(self)
            right.add(key)

    TensorHandle.__post_init__ = check_once


def _remember_dtypes() -> None:
    """The interpreter makes a table of NumPy's dtypes for every constant, and goes through rules
    of promotion for every operation: a tenth of the time."""
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    promoted, numpy_dtype = TritonSemantic.computation_type_impl, interpreter._get_np_dtype
    promotions: dict[tuple[Any, ...], Any] = {}
    numpy_dtypes: dict[str, Any] = {}

    def promoted_once(
        self: Any, a: Any, a_scalar: bool, b: Any, b_scalar: bool, *more: bool
    ) -> Any:
        key = (a.name, a_scalar, b.name, b_scalar, *more)
        if key not in promotions:
            promotions[key] = promoted(self, a, a_scalar, b, b_scalar, *more)
        return promotions[key]

    def numpy_dtype_once(type: Any) -> Any:
        name = type.scalar.name
        if name not in numpy_dtypes:
            numpy_dtypes[name] = numpy_dtype(type)
        return numpy_dtypes[name]

    TritonSemantic.computation_type_impl = promoted_once
    interpreter._get_np_dtype = numpy_dtype_once


def _convert_with_shifts_and_tables() -> None:
    """The interpreter takes floating-point numbers apart and puts them together again: a quarter of
    the time of a step in bf16. To and from float32, which it truncates, that is a shift; a type of
    8 bits has 256 values, which it converts once."""
    from triton.language import bfloat16, float32
    from triton.runtime import interpreter

    convert = interpreter._convert_float
    tables: dict[tuple[Any, ...], Any] = {}

    def convert_at_once(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source.primitive_bitwidth == 8:
            key = (source.name, target.name, rounding)
            if key not in tables:
                tables[key] = convert(np.arange(256, dtype=np.uint8), source, target, rounding)
            return tables[key][values.view(np.uint8)]
        if (source, target) == (bfloat16, float32):
            return values.view(np.uint16).astype(np.uint32) << 16
        if (source, target, rounding) == (float32, bfloat16, None):
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        return convert(values, source, target, rounding)

    interpreter._convert_float = convert_at_once


if "TRITON_INTERPRET" in os.environ:
    _patch_language_once()
    _leave_unused_checks_out()
    _call_builtins_directly()
    _load_directly()
    _remember_parameters()
    _remember_types()
    _remember_operands()
    _check_sizes_once()
    _remember_dtypes()
    _convert_with_shifts_and_tables()


class _OneThread:
    def __init__(self, _: int) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, *arguments: Any) -> Any:
        return map(*arguments)


def launch_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `launch_all` launch one after the other: the interpreter runs in the main thread only."""
    from decodescope.variants.machine import compile_ahead

    monkeypatch.setattr(compile_ahead, "ThreadPoolExecutor", _OneThread)
