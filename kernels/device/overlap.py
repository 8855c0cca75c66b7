"""Programmatic dependent launch (PDL): a kernel starts while the one before it still runs.

The kernel says early that the next one may start (`allow_next`), loads what no earlier kernel of
the chain writes (weights), and waits (`wait_for_previous`) before it touches anything else. The
wait returns when the kernel before has completed and its writes are visible. Since that one has
waited in the same way, all earlier ones are complete too; a kernel of the chain that does not wait
breaks the order for those after it.

Needs compute capability 9.0; with PDL=False both compile to nothing, as under the interpreter.
Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization";
PTX ISA, griddepcontrol.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

CAPABILITY = (9, 0)


def can_overlap(device: torch.device) -> bool:
    """Whether kernels on this device can be launched with PDL."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= CAPABILITY


@triton.jit
def allow_next(PDL: tl.constexpr):
    """The next kernel of the stream may start once every program of this one got here."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Return when the kernel before has completed and what it wrote can be read."""
    if PDL:
        gdc_wait()
