"""Kernels by the time they took in all."""

import numpy as np

from decodescope.analyzer.roofline.op_work import op_work
from decodescope.analyzer.roofline.roofline import rooflines
from decodescope.analyzer.schema.report import KernelReport
from decodescope.analyzer.timing.launches import LaunchCalls
from decodescope.analyzer.timing.short_kernels import short_kernel_ops
from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Int64s, Trace


def kernel_reports(
    trace: Trace, launches: LaunchCalls, reference_op: Int64s
) -> tuple[KernelReport, ...]:
    """One row for each kernel name (in a CPU capture: each leaf operator), longest total first.

    `mean_ns` is total / count rounded down, `share` total / sum of all totals. `reference_op` gives
    for each op the one of `Trace.reference` that it is, or -1.
    """
    kind = CPU_OPERATOR if trace.on_cpu else KERNEL
    mine = np.flatnonzero(trace.ops.kind == kind)
    names, index, counts = np.unique(trace.ops.name[mine], return_inverse=True, return_counts=True)
    totals = np.zeros(len(names), dtype=np.int64)
    np.add.at(totals, index, trace.ops.end_ns[mine] - trace.ops.start_ns[mine])
    short_ops = trace.ops.name[short_kernel_ops(trace, launches)]
    short = np.bincount(short_ops, minlength=len(trace.names))[names]
    everything = int(totals.sum())
    known = rooflines(trace, op_work(trace, reference_op))
    rows = zip(names.tolist(), counts.tolist(), totals.tolist(), short.tolist(), strict=True)
    return tuple(
        KernelReport(
            name=trace.names[name],
            count=count,
            total_ns=total,
            mean_ns=total // count,
            share=total / everything if everything else 0.0,
            short_calls=short_calls,
            roofline=known.get(name),
        )
        for name, count, total, short_calls in sorted(
            rows, key=lambda row: (-row[2], trace.names[row[0]])
        )
    )
