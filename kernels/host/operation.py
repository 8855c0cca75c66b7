"""The operations of a decode step as data: what is launched, on which memory, and what comes out.

The operation of a kernel is a dataclass of what the kernel works on, and the only way to launch it.
Whoever runs, counts, times or checks a step reads it from there.

At every launch Triton inspects each argument to find the compiled kernel: tens of microseconds on
the host, where the GPU needs a few. A decode step launches the same kernels on the same memory each
time, so a launch can be kept: `Launch` calls the compiled kernel directly, with addresses in place
of tensors.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch

from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix

Tensors = tuple[torch.Tensor, ...]


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


class Operation(ABC):
    """One operation of a decode step, on the same memory in every step."""

    __slots__ = ()

    @abstractmethod
    def run(self, pdl: bool) -> tuple[Launch, ...]:
        """Run it once on the current stream; with `pdl` it may overlap with the previous kernel.

        Returns its launches, which can be replayed; none if it must be run again instead.
        """

    @property
    def weights(self) -> Tensors:
        """The model's parameters, or the parts of them, that it reads."""
        return ()


class KernelOperation(Operation):
    """An operation in one launch, which can also be checked and counted.

    Unless a subclass says otherwise, it reads its field `x` and its weights and writes its field
    `out`. `position` is the number that the device's position holds: the tokens in the KV cache.
    """

    __slots__ = ()

    x: torch.Tensor
    out: torch.Tensor

    @abstractmethod
    def launch(self, pdl: bool = False) -> Launch:
        """Launch the kernel once on the current stream; with `pdl` it may start before the previous
        kernel has ended.

        Raises:
            ValueError: other shapes, dtypes, layouts or devices than the class documents.
        """

    @abstractmethod
    def reference(self, position: int) -> Tensors:
        """`outputs`, then `updated`, in float64 from the present inputs."""

    def inputs(self, position: int) -> Tensors:
        """The tensors that one launch must read and does not change."""
        return self.x, *self.weights

    def outputs(self, position: int) -> Tensors:
        """The tensors that it overwrites without reading them."""
        return (self.out,)

    @property
    def updated(self) -> Tensors:
        """The tensors that it reads and overwrites."""
        return ()

    @property
    def arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def weights(self) -> Tensors:
        return tuple(tensor for value in self.arguments.values() for tensor in parameters(value))

    @property
    def kernel(self) -> str:
        """The kernel's name: the class's in snake case."""
        return re.sub(r"(?<!^)([A-Z])", r"_\1", type(self).__name__).lower()

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        return (self.launch(pdl),)

    def bytes_moved(self, position: int) -> int:
        """Bytes that one launch must read and write."""
        once = (*self.inputs(position), *self.outputs(position))
        return sum(tensor.nbytes for tensor in (*once, *self.updated, *self.updated))


class ResidualOperation(KernelOperation):
    """An operation that adds its result to `residual`, in place; or, unless it `adds`, writes it
    there."""

    __slots__ = ()

    residual: torch.Tensor
    adds: bool

    @property
    def start(self) -> torch.Tensor:
        """What the result is added to, for references."""
        return self.residual if self.adds else torch.zeros_like(self.residual)

    def outputs(self, position: int) -> Tensors:
        return () if self.adds else (self.residual,)

    @property
    def updated(self) -> Tensors:
        return (self.residual,) if self.adds else ()


def parameters(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a matrix or norm, which are read entirely; none of any other value. Scales of
    groups are counted once, in a matrix' data."""
    if isinstance(value, WeightMatrix):
        yield from (tensor for tensor in value.pointers if tensor is not None)
    elif isinstance(value, Norm | QkNorm):
        members = (getattr(value, field.name) for field in fields(value))
        yield from (member for member in members if isinstance(member, torch.Tensor))
