"""Without a GPU, kernels run in Triton's interpreter. Import this before anything of Triton."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")


def _patch_language_once_a_launch() -> None:
    """The interpreter replaces the functions of `triton.language` for a launch, and again at every
    call of a device function, which changes nothing and takes about half of the time.

    What differs between functions is only which of Triton's modules their own module imports.
    """
    from triton.runtime import interpreter

    patch: Callable[[Any], Any] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    patched: set[str] = set()

    def patch_once(function: Any) -> Any:
        if function.__module__ in patched:
            return None
        patched.add(function.__module__)
        return patch(function)

    def launch_anew(executor: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        try:
            launch(executor, *args, **kwargs)
        finally:
            patched.clear()

    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = launch_anew


if "TRITON_INTERPRET" in os.environ:
    _patch_language_once_a_launch()
