"""Tells processes apart in an Nsight Systems export: ids, devices and streams are per process."""

import numpy as np

from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import Int64s

_PROCESS_SHIFT = 32
_GPU_NAME_TABLES = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_DEVICE_TABLE = "TARGET_INFO_CUDA_DEVICE"


def own_ids(gpu: dict[str, Int64s], gpu_pid: Int64s, calls: dict[str, Int64s]) -> None:
    """Make correlation ids unique across processes, in place.

    An op that names no process belongs to the only one there is, or else to none.
    """
    processes = np.unique(np.concatenate((gpu_pid[gpu_pid >= 0], calls["pid"])))
    for columns, pid in ((gpu, gpu_pid), (calls, calls["pid"])):
        place = np.searchsorted(processes, pid)
        if len(processes) > 1:
            place = np.where(pid < 0, len(processes), place)
        ids = columns["correlation"]
        real = (ids > 0) & (ids < 1 << _PROCESS_SHIFT)
        columns["correlation"] = np.where(real, ids + (place << _PROCESS_SHIFT), -1)


def own_devices(
    database: NsysDatabase, gpu: dict[str, Int64s], gpu_pid: Int64s, findings: list[Finding]
) -> dict[int, str]:
    """Put the GPU's number in place of each process's own device number; the GPUs' names.

    A file that does not map them leaves the numbers as they are, with a finding where several
    processes use one number.
    """
    gpu_of = _gpu_numbers(database)
    used = np.unique(np.stack((gpu_pid, gpu["device"]), axis=1), axis=0).tolist()
    moved = gpu["device"].copy()
    unmapped: dict[int, int] = {}
    for pid, device in used:
        number = gpu_of.get((pid, device))
        if number is None:
            unmapped[device] = unmapped.get(device, 0) + 1
        else:
            moved[(gpu_pid == pid) & (gpu["device"] == device)] = number
    gpu["device"] = moved
    for device, processes in unmapped.items():
        if processes > 1:
            findings.append(
                Finding(
                    "shared_device",
                    f"{processes} processes call a GPU device {device} and the file does not say "
                    "whether it is one GPU; its figures are those of all of them",
                )
            )
    return _gpu_names(database)


def own_streams(gpu: dict[str, Int64s], gpu_pid: Int64s) -> None:
    """Keep the streams of several processes on one device apart, in place."""
    for device in np.unique(gpu["device"]).tolist():
        here = gpu["device"] == device
        processes, place = np.unique(gpu_pid[here], return_inverse=True)
        if len(processes) > 1:
            gpu["stream"][here] += place << _PROCESS_SHIFT


def _gpu_numbers(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """(pid, CUDA ordinal) -> GPU, where the file says so without contradicting itself."""
    found: dict[tuple[int, int], set[int]] = {}
    for pid, ordinal, number in database.rows(_DEVICE_TABLE, ("pid", "cudaId", "gpuId")):
        if isinstance(pid, int) and isinstance(ordinal, int) and isinstance(number, int):
            found.setdefault((pid, ordinal), set()).add(number)
    return {key: numbers.pop() for key, numbers in found.items() if len(numbers) == 1}


def _gpu_names(database: NsysDatabase) -> dict[int, str]:
    names: dict[int, str] = {}
    for table in _GPU_NAME_TABLES:
        for number, name in database.rows(table, ("id", "name")):
            if isinstance(number, int) and isinstance(name, str):
                names.setdefault(number, name)
    return names
