"""Without a GPU, kernels run in Triton's interpreter. Import this before anything of Triton."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

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


if "TRITON_INTERPRET" in os.environ:
    _patch_language_once()
    _leave_unused_checks_out()


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
