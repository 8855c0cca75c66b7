"""Compiles kernels several at a time, by launching each once: a tuner's wait is mostly compilation.

Triton compiles in native code and in ptxas, both without Python's lock.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from triton.compiler.errors import CompilationError
from triton.errors import TritonError

Choice = TypeVar("Choice")

_COMPILERS = 16


def launch_all(choices: Iterable[Choice], launch: Callable[[Choice], object]) -> dict[Choice, str]:
    """Call `launch` for each choice, in any order, from several threads; returns why some cannot
    run.

    Raises:
        torch.OutOfMemoryError: a launch has no room.
    """

    def refusal(choice: Choice) -> str | None:
        try:
            if torch.cuda.is_available():
                # Makes the GPU's context that of the thread: the driver encodes tensor maps, and
                # unlike the runtime it does not choose a context by itself.
                torch.cuda.synchronize()
            launch(choice)
        except torch.OutOfMemoryError:
            raise
        except (TritonError, RuntimeError, ValueError) as error:
            return compile_reason(error)
        return None

    distinct = list(dict.fromkeys(choices))
    with ThreadPoolExecutor(_COMPILERS) as pool:
        refusals = zip(distinct, pool.map(refusal, distinct), strict=True)
        return {choice: reason for choice, reason in refusals if reason is not None}


def compile_reason(error: Exception) -> str:
    """The line of a launch's error that says what is wrong."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # A compilation error quotes the kernel first and ends with what is wrong.
    return lines[-1 if isinstance(error, CompilationError) else 0].strip()
