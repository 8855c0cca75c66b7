"""The name of an AMD device that a trace lists without one, as ROCm's profiler does.

Compute units and memory tell the Instinct devices apart. A device in a partition mode has fewer of
both, and stays without a name; so do those that share both figures. Source: ROCm documentation,
"AMD GPU specifications".
"""

from collections.abc import Mapping

# (GFXIP major, minor, compute units, GiB of memory) of each device.
_DEVICES = {
    (9, 4, 304, 192): "AMD Instinct MI300X",
    (9, 4, 304, 256): "AMD Instinct MI325X",
    (9, 4, 228, 128): "AMD Instinct MI300A",
    (9, 0, 110, 64): "AMD Instinct MI250X",
    (9, 0, 120, 32): "AMD Instinct MI100",
}
# The driver keeps a part of the memory for itself.
_MEMORY_TOLERANCE = 0.03


def name_by_properties(properties: Mapping[str, object]) -> str:
    """The device that has the `computeMajor`, `computeMinor`, `numSms` and `totalGlobalMem` of an
    entry of `deviceProperties`; "" if none has, or if its warps are not those of AMD."""
    memory = properties.get("totalGlobalMem")
    if properties.get("warpSize") != 64 or not isinstance(memory, int):
        return ""
    found = tuple(properties.get(one) for one in ("computeMajor", "computeMinor", "numSms"))
    for (*figures, gibibytes), name in _DEVICES.items():
        size = gibibytes * 2**30
        if found == tuple(figures) and (1 - _MEMORY_TOLERANCE) * size <= memory <= size:
            return name
    return ""
