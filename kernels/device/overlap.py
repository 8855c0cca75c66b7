"""Programmatic dependent launch (PDL): a kernel starts while the previous one still runs.

A kernel allows the next one to start early (`allow_next`), loads what no earlier kernel of the
chain writes (weights), and waits (`wait_for_previous`) before it accesses anything else. The wait
returns when the previous kernel has completed and its writes are visible. Since that kernel has
waited in the same way, all earlier ones are complete too; a kernel of the chain that does not wait
breaks the order for all that follow.

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
    """Let the stream's next kernel start as soon as every program of this one has reached this."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Return when the previous kernel has completed and its writes are visible."""
    if PDL:
        gdc_wait()
