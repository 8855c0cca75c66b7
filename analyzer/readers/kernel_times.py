"""Kernels whose times cannot be right: those that were counted and not timed, and those that a
profiler gave no length or a start before their launch; and windows that lost all kernels."""

from dataclasses import replace

import numpy as np

from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.timing.launches import launches_without_ops
from decodescope.analyzer.trace import KERNEL, MEMCPY, MEMSET, GpuOps, HostEvents, Trace

# Fewer ops without a duration may have been rounded to 0 µs, as old files are.
_UNTIMED_OPS = 50
# Clocks of host and device differ by less.
_CLOCK_ERROR_NS = 1_000_000
# The launch of an op whose call is unknown; no time of a trace is before it.
_ALWAYS_NS = -(2**61)


def none_if_untimed(ops: GpuOps, findings: list[Finding]) -> GpuOps:
    """The ops, or none of them and a finding if they were counted, not timed: no op has a length,
    or most kernels have none. Files in whole µs round that of short kernels to 0."""
    lengths_ns = ops.length_ns[ops.kind == KERNEL]
    timed = int(np.count_nonzero(lengths_ns))
    in_whole_us = not (ops.start_ns % 1_000).any()
    if len(ops) < _UNTIMED_OPS:
        return ops
    if not ops.length_ns.any():
        words = f"none of the {len(ops):,} GPU ops has"
    elif 2 * timed < len(lengths_ns) and (timed == 0 or not in_whole_us):
        words = f"only {timed:,} of {len(lengths_ns):,} kernels have" if timed else "no kernel has"
    else:
        return ops
    message = f"{words} a duration: they were counted, not timed, and no figure is given"
    findings.append(Finding("counted_kernels", message))
    return ops.take(slice(0))


def without_invalid_times(ops: GpuOps, calls: HostEvents, findings: list[Finding]) -> GpuOps:
    """Drop kernels of no length, which no GPU runs, and those that start long before their launch
    call, if few do; the rest of the trace is right.

    CUPTI of CUDA 12.6 Update 2 to 13.0 gives kernels at the head of a window such times
    (pytorch/pytorch#192021; the release notes of CUPTI 13.1). Files in whole µs round short kernels
    to no length.
    """
    is_kernel = ops.kind == KERNEL
    empty = is_kernel & (ops.start_ns == ops.end_ns)
    empty &= empty.any() and (ops.start_ns % 1_000).any()
    earliest_ns = np.append(calls.start_ns, _ALWAYS_NS)[ops.launch]
    earliest_ns -= _CLOCK_ERROR_NS
    early = is_kernel & (ops.start_ns < earliest_ns)
    for chosen, possible in ((empty, is_kernel), (early, is_kernel & (ops.launch >= 0))):
        chosen &= 2 * np.count_nonzero(chosen) <= np.count_nonzero(possible)
    invalid = empty | early
    if not invalid.any():
        return ops
    findings.append(
        Finding(
            "invalid_kernel_times",
            f"{np.count_nonzero(invalid):,} of {np.count_nonzero(is_kernel):,} kernels have no "
            "length or start long before their launch call, and were left out: CUPTI of CUDA 12.6 "
            "Update 2 to 13.0 does this at the head of a window; CUDA 13.1 does not",
        )
    )
    return ops.take(~invalid)


def without_lone_copies(trace: Trace) -> Trace:
    """The trace without its copies and fills, if no kernel was recorded and launches outnumber
    these: they would show a device that waits for the host.

    CUPTI 13.0 and 13.1 return no kernel of some windows (docs/experiments.md).
    """
    copies = len(trace.ops)
    if not copies or not np.isin(trace.ops.kind, (MEMCPY, MEMSET)).all():
        return trace
    launches = len(launches_without_ops(trace))
    if launches <= copies:
        return trace
    message = (
        f"none of {launches:,} launches has a kernel, so the {copies:,} copies and fills were left "
        "out; CUPTI of CUDA 13.0 and 13.1 loses all kernels of some windows"
    )
    findings = (*trace.findings, Finding("lone_copies", message))
    return replace(trace, ops=trace.ops.take(slice(0)), findings=findings)
