"""Launching a kernel, and launching it again with the same arguments.

Triton looks at every argument of every launch to find the compiled kernel it needs: tens of
microseconds on the host, where the GPU needs a few. A decode step launches the same kernels on the
same memory each time, so a launch can be kept: `Launch` goes to the compiled kernel directly, with
addresses in place of tensors.
"""

from collections.abc import Callable
from typing import Any

import torch


class Launch:
    """A kernel with its arguments; each call launches it once more, on the current stream.

    What the tensors contain is read anew; grid, shapes and numbers are those of the first launch.
    `tensors` are kept alive, because the arguments know only their addresses.
    """

    __slots__ = ("_arguments", "_runner", "_tensors")

    def __init__(
        self, runner: Callable[..., Any], arguments: tuple[Any, ...], tensors: tuple[Any, ...] = ()
    ) -> None:
        self._runner = runner
        self._arguments = arguments
        self._tensors = tensors

    def __call__(self) -> None:
        self._runner(*self._arguments)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> Launch:
    """Launch `kernel[grid](*arguments, **named)`; returns the launch, to be made again.

    `named` holds the kernel's last parameters, all of them compile-time constants, and Triton's
    launch options.
    """
    compiled = kernel[grid](*arguments, **named)
    if compiled is None:
        # The interpreter has nothing compiled.
        return Launch(lambda *again: kernel[grid](*again, **named), arguments)
    constants = tuple(named[name] for name in kernel.arg_names[len(arguments) :])
    runner = compiled[(*grid, 1, 1)[:3]]
    return Launch(runner, (*map(_address, arguments), *constants), arguments)


def _address(argument: Any) -> Any:
    """A tensor's address, which Triton's launcher takes as it is; of tensors it asks the driver."""
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else argument
