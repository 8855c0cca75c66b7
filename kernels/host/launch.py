"""Launching a kernel, and replaying the launch.

At every launch Triton inspects each argument to find the compiled kernel: tens of microseconds on
the host, where the GPU needs a few. A decode step launches the same kernels on the same memory each
time, so a launch can be kept: `Launch` calls the compiled kernel directly, with addresses in place
of tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel with its arguments; each call launches it on the current stream.

    Tensors are read again at each call; grid, shapes and numbers are those of the first launch.
    `tensors` are kept alive, because the arguments hold only their addresses.
    """

    runner: Callable[..., Any]
    arguments: tuple[Any, ...]
    tensors: tuple[Any, ...] = ()

    def __call__(self) -> None:
        self.runner(*self.arguments)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> Launch:
    """Launch `kernel[grid](*arguments, **named)`; returns the launch, which can be replayed.

    `named` holds the kernel's last parameters, all of them compile-time constants, and Triton's
    launch options. A pointer may be None: Triton compiles the kernel without it. A kernel with
    `PDL` is launched such that it may start before the previous kernel has ended.
    """
    if named.get("PDL"):
        named["launch_pdl"] = True
    compiled = kernel[grid](*arguments, **named)
    if compiled is None:
        # The interpreter has nothing compiled.
        return Launch(lambda *again: kernel[grid](*again, **named), arguments)
    constants = tuple(named[name] for name in kernel.arg_names[len(arguments) :])
    runner = compiled[(*grid, 1, 1)[:3]]
    return Launch(runner, (*map(_address, arguments), *constants), arguments)


def _address(argument: Any) -> Any:
    """A tensor's address: for a tensor, every launch would query the driver."""
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else argument
