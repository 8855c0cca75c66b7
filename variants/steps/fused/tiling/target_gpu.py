"""The GPU that tiles are chosen for."""

from msgspec import Struct

import decodescope
from decodescope.analyzer.machine.provenance import package_version
from decodescope.variants.machine.environment import driver_version

_REGISTERS_SHARED_BYTES = 200 * 1024


class TargetGpu(Struct, frozen=True):
    """One kind of GPU with its present software.

    `shared_bytes` is the most shared memory of one program. With another compiler, driver or kernel
    another tile may be the best.
    """

    name: str
    multiprocessors: int
    shared_bytes: int
    driver: str | None
    triton: str | None
    decodescope: str

    @property
    def multiplies_from_registers(self) -> bool:
        """Whether tensor cores take converted weights from registers: of the compute capabilities
        9.0 and 10.0, which have 227 KiB of shared memory for a program, and others 163 at most."""
        return self.shared_bytes >= _REGISTERS_SHARED_BYTES


def this_target_gpu() -> TargetGpu:
    """The first CUDA device; needs torch and a CUDA device."""
    import torch
    from triton.runtime import driver

    properties = torch.cuda.get_device_properties()
    return TargetGpu(
        name=properties.name,
        multiprocessors=properties.multi_processor_count,
        shared_bytes=driver.active.utils.get_device_properties(0)["max_shared_mem"],
        driver=driver_version(),
        triton=package_version("triton"),
        decodescope=decodescope.__version__,
    )
