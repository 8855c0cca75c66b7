"""Kernels by the time they took in all."""

import numpy as np

from decodescope.analyzer.report import KernelReport
from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Trace


def kernel_reports(trace: Trace) -> tuple[KernelReport, ...]:
    """One row for each kernel name (in a CPU capture: each leaf operator), longest total first.

    `mean_ns` is total / count rounded down, `share` total / sum of all totals.
    """
    kind = CPU_OPERATOR if trace.on_cpu else KERNEL
    mine = np.flatnonzero(trace.ops.kind == kind)
    names, index, counts = np.unique(trace.ops.name[mine], return_inverse=True, return_counts=True)
    totals = np.zeros(len(names), dtype=np.int64)
    np.add.at(totals, index, trace.ops.end_ns[mine] - trace.ops.start_ns[mine])
    everything = int(totals.sum())
    rows = zip(names.tolist(), counts.tolist(), totals.tolist(), strict=True)
    return tuple(
        KernelReport(
            name=trace.names[name],
            count=count,
            total_ns=total,
            mean_ns=total // count,
            share=total / everything if everything else 0.0,
        )
        for name, count, total in sorted(rows, key=lambda row: (-row[2], trace.names[row[0]]))
    )
