"""Separates the processes of an Nsight Systems export: ids, devices and streams are per process."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from decodescope.analyzer.readers.columns import NOT_GIVEN
from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import GpuOps, HostEvents, Int64s

_PROCESS_SHIFT = 32
_GPU_NAME_TABLES = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_DEVICE_TABLE = "TARGET_INFO_CUDA_DEVICE"
_Events = TypeVar("_Events", GpuOps, HostEvents)


def own_ids(gpu: GpuOps, gpu_pid: Int64s, calls: HostEvents) -> tuple[GpuOps, HostEvents]:
    """The same with correlation ids that are unique across processes.

    An op without a process belongs to the only process of the file; if there are several, to none.
    """
    processes = np.unique(np.concatenate((gpu_pid[gpu_pid >= 0], calls.pid)))

    def unique(events: _Events, pid: Int64s) -> _Events:
        place = np.searchsorted(processes, pid)
        if len(processes) > 1:
            place = np.where(pid < 0, len(processes), place)
        ids = events.correlation
        real = (ids > 0) & (ids < 1 << _PROCESS_SHIFT)
        return replace(
            events, correlation=np.where(real, ids + (place << _PROCESS_SHIFT), NOT_GIVEN)
        )

    return unique(gpu, gpu_pid), unique(calls, calls.pid)


def own_devices(
    database: NsysDatabase, gpu: GpuOps, gpu_pid: Int64s, findings: list[Finding]
) -> GpuOps:
    """The same with the GPU's number instead of each process's own device number, and with a
    separate stream for each process that shares a device.

    If the file does not map device numbers to GPUs they stay as they are, with a finding if several
    processes use the same number.
    """
    gpu_of = _gpu_numbers(database)
    used = np.unique(np.stack((gpu_pid, gpu.device), axis=1), axis=0).tolist()
    moved, stream = gpu.device.copy(), gpu.stream.copy()
    unmapped: dict[int, int] = {}
    for pid, device in used:
        number = gpu_of.get((pid, device))
        if number is None:
            unmapped[device] = unmapped.get(device, 0) + 1
        else:
            moved[(gpu_pid == pid) & (gpu.device == device)] = number
    for device, processes in unmapped.items():
        if processes > 1:
            findings.append(
                Finding(
                    "shared_device",
                    f"{processes} processes call a GPU device {device} and the file does not say "
                    "whether it is one GPU; its figures are those of all of them",
                )
            )
    for device in np.unique(moved).tolist():
        here = moved == device
        pids, place = np.unique(gpu_pid[here], return_inverse=True)
        if len(pids) > 1:
            stream[here] += place << _PROCESS_SHIFT
    return replace(gpu, device=moved, stream=stream)


def _gpu_numbers(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """(pid, CUDA ordinal) -> GPU, if the file maps it to exactly one."""
    found: dict[tuple[int, int], set[int]] = {}
    for pid, ordinal, number in database.rows(_DEVICE_TABLE, ("pid", "cudaId", "gpuId")):
        if isinstance(pid, int) and isinstance(ordinal, int) and isinstance(number, int):
            found.setdefault((pid, ordinal), set()).add(number)
    return {key: numbers.pop() for key, numbers in found.items() if len(numbers) == 1}


def gpu_names(database: NsysDatabase) -> dict[int, str]:
    """The name of each GPU, by its number."""
    names: dict[int, str] = {}
    for table in _GPU_NAME_TABLES:
        for number, name in database.rows(table, ("id", "name")):
            if isinstance(number, int) and isinstance(name, str):
                names.setdefault(number, name)
    return names
