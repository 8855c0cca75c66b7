"""Devices that Kineto does not describe: the CPU of a CPU capture, and AMD GPUs without a name.

The ops of a CPU capture are its innermost operators that do work. Views, allocations and checks are
ignored, as they launch nothing on a GPU either; a matrix product counts as one operator, although
PyTorch's CPU version calls others (a bias copy, checks) before its own loop. The collectives of
gloo run in its own threads, each in a range, and count in the place of the operators that ask for
them.

ROCm's profiler lists devices without names. Compute units and memory tell the Instinct devices
apart. A device in a partition mode has fewer of both, and stays without a name; so do those that
share both figures. Source: ROCm documentation, "AMD GPU specifications".
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

import numpy as np

from decodescope.analyzer.readers.trace_columns import gpu_ops
from decodescope.analyzer.text.numbers import is_integer
from decodescope.analyzer.trace import CPU_DEVICE, CPU_OPERATOR, GpuOps, HostEvents, Int64s, grouped

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
# What torch.distributed calls gloo's collectives, and the operators that ask for one.
_COLLECTIVE, _ASKING = "gloo:", "c10d::"
_EARLIEST = np.iinfo(np.int64).min


@cache
def _operators() -> dict[str, frozenset[str]]:
    text = files(__package__).joinpath("operators.toml").read_text(encoding="utf-8")
    return {name: frozenset(operators) for name, operators in tomllib.loads(text).items()}


def name_by_properties(properties: Mapping[str, object]) -> str:
    """The device that has the `computeMajor`, `computeMinor`, `numSms` and `totalGlobalMem` of an
    entry of `deviceProperties`; "" if none has, or if its warps are not those of AMD."""
    memory = properties.get("totalGlobalMem")
    if properties.get("warpSize") != 64 or not is_integer(memory):
        return ""
    figures = [properties.get(key) for key in ("computeMajor", "computeMinor", "numSms")]
    for (*known, gibibytes), name in _DEVICES.items():
        size = gibibytes * 2**30
        if figures == known and (1 - _MEMORY_TOLERANCE) * size <= memory <= size:
            return name
    return ""


def leaf_operators(cpu_ops: HostEvents, ranges: HostEvents, names: Sequence[str]) -> GpuOps:
    """The leaf operators as GPU ops on `CPU_DEVICE`, one stream for each thread; a collective is on
    that of the thread that asks for it and waits."""
    collectives = ranges.take(_named(ranges, names, _COLLECTIVE))
    if len(collectives):
        asking = _named(cpu_ops, names, _ASKING)
        if len(asking):
            collectives = replace(
                collectives, tid=np.full(len(collectives), cpu_ops.tid[asking[0]])
            )
        cpu_ops = cpu_ops.take(np.setdiff1d(np.arange(len(cpu_ops)), asking))
    leaf = HostEvents.concatenate([cpu_ops.take(_leaves(cpu_ops, names)), collectives])
    leaf = leaf.take(np.lexsort((leaf.tid, leaf.end_ns, leaf.start_ns)))
    return gpu_ops(
        CPU_OPERATOR,
        start_ns=leaf.start_ns,
        end_ns=leaf.end_ns,
        name=leaf.name,
        device=np.full(len(leaf), CPU_DEVICE, dtype=np.int64),
        stream=leaf.tid,
        external_id=leaf.external_id,
    )


def _named(events: HostEvents, names: Sequence[str], beginning: str) -> Int64s:
    chosen = np.array([name.startswith(beginning) for name in names], dtype=np.bool_)
    return np.flatnonzero(chosen[events.name]) if len(names) else np.zeros(0, dtype=np.int64)


def _leaves(cpu_ops: HostEvents, names: Sequence[str]) -> Int64s:
    operators = _operators()
    works = np.array([name not in operators["no_work"] for name in names], dtype=np.bool_)
    whole = np.array([name in operators["whole"] for name in names], dtype=np.bool_)
    working = np.flatnonzero(works[cpu_ops.name]) if len(names) else np.zeros(0, dtype=np.int64)
    order = working[np.lexsort((-cpu_ops.end_ns[working], cpu_ops.start_ns[working]))]
    leaves = [np.zeros(0, dtype=np.int64)]
    for rows in grouped(order, cpu_ops.tid):
        whole_end = np.where(whole[cpu_ops.name[rows]], cpu_ops.end_ns[rows], _EARLIEST)
        whole_until = np.maximum.accumulate(whole_end)
        outside = cpu_ops.start_ns[rows[1:]] >= whole_until[:-1]
        rows = rows[np.append(True, outside)]
        parent = cpu_ops.start_ns[rows[1:]] < cpu_ops.end_ns[rows[:-1]]
        leaves.append(rows[~np.append(parent, False)])
    return np.sort(np.concatenate(leaves))
