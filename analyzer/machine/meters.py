"""Reads the GPU's own meters through NVML, in the app's process: the worker only decodes.

The package is nvidia-ml-py, whose module is called pynvml. Where it, the driver or the GPU is
missing, there are no meters.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from decodescope.analyzer.protocol.messages import Meters

METERS_INTERVAL_S = 1.0
# NVML's masks, worst first. Idling and clocks that somebody set are no throttling.
_REASONS = {
    0x40: "hot (hardware)",
    0x80: "power brake",
    0x08: "hardware slowdown",
    0x20: "hot",
    0x04: "power cap",
    0x10: "sync boost",
}
_HARDWARE_SLOWDOWN, _ITS_CAUSES = 0x08, 0x40 | 0x80

Value = TypeVar("Value")


class GpuMeters:
    """The meters of one GPU. Its methods may take some milliseconds; call them in a thread."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._gpu = handle

    def read(self) -> Meters | None:
        """All that the GPU reports now; None if it reports nothing (it fell off the bus)."""
        nvml, gpu = self._nvml, self._gpu
        power_mw = _try(lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
        limit_mw = _try(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu))
        memory = _try(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu))
        meters = Meters(
            power_w=None if power_mw is None else power_mw / 1e3,
            power_limit_w=None if limit_mw is None else limit_mw / 1e3,
            sm_clock_mhz=_try(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            temperature_c=_try(
                lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            ),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            utilization_percent=_try(lambda: int(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)),
            throttle=_reasons(
                _try(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)) or 0
            ),
        )
        return None if meters == Meters() else meters

    def close(self) -> None:
        _try(self._nvml.nvmlShutdown)


def open_meters(uuid: str, nvml: Any = None) -> GpuMeters | None:
    """The meters of the GPU that the driver calls `uuid`; None without it, its driver or pynvml.

    CUDA_VISIBLE_DEVICES renumbers GPUs for the worker, but does not change their names.
    """
    module = _started(nvml)
    if module is None:
        return None
    handle = _try(lambda: module.nvmlDeviceGetHandleByUUID(uuid))
    if handle is None:
        _try(module.nvmlShutdown)
        return None
    return GpuMeters(module, handle)


def has_gpu(nvml: Any = None) -> bool:
    """Whether NVML sees a GPU; may take some milliseconds."""
    module = _started(nvml)
    if module is None:
        return False
    count = _try(lambda: int(module.nvmlDeviceGetCount()))
    _try(module.nvmlShutdown)
    return bool(count)


def _started(nvml: Any) -> Any:
    """NVML, ready to be asked; None without a driver or pynvml."""
    module: Any = nvml or _try(lambda: importlib.import_module("pynvml"))
    return module if _try(lambda: module.nvmlInit() or True) else None


def _try(call: Callable[[], Value]) -> Value | None:
    """The result of `call`; None if NVML raises, which it does for all that a GPU cannot report."""
    try:
        return call()
    except Exception:  # its errors, a missing module, or a function that an old driver lacks
        return None


def _reasons(mask: int) -> tuple[str, ...]:
    if mask & _ITS_CAUSES:
        mask &= ~_HARDWARE_SLOWDOWN
    return tuple(words for bit, words in _REASONS.items() if mask & bit)
