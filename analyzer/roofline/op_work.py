"""What single GPU ops had to move and to compute, where the trace says so.

Of an operator that was traced with its shapes, the work counts for the longest of the kernels that
it launched (a split product's reduction, say, stays without). An op of a graph replay has the work
of the op that it was found to be in the trace's reference.
"""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.trace import CPU_OPERATOR, KERNEL, Int64s, Trace

UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class OpWork:
    """One row for each op of the trace; `UNKNOWN` where nothing is said."""

    bytes: Int64s
    flops: Int64s


def op_work(trace: Trace, reference_op: Int64s) -> OpWork:
    """Bytes and FLOPs of every op; `reference_op` indexes `Trace.reference.ops`, -1 for none."""
    moved, computed = np.full((2, len(trace.ops)), UNKNOWN, dtype=np.int64)
    if trace.reference is not None:
        known = np.flatnonzero(reference_op >= 0)
        rows = [trace.reference.ops[index] for index in reference_op[known].tolist()]
        moved[known] = [UNKNOWN if row.bytes is None else row.bytes for row in rows]
        computed[known] = [UNKNOWN if row.flops is None else row.flops for row in rows]
    op, row = _longest_of_each_operator(trace)
    moved[op], computed[op] = trace.work.bytes[row], trace.work.flops[row]
    return OpWork(moved, computed)


def _longest_of_each_operator(trace: Trace) -> tuple[Int64s, Int64s]:
    """Ops and the rows of `Trace.work` that they stand for."""
    ops, operators = trace.ops, trace.work.external_id
    kernels = np.flatnonzero((ops.kind == KERNEL) | (ops.kind == CPU_OPERATOR))
    row = np.searchsorted(operators, ops.external_id[kernels])
    found = np.append(operators, UNKNOWN)[row] == ops.external_id[kernels]
    found &= ops.external_id[kernels] >= 0
    op, row = kernels[found], row[found]
    order = np.lexsort((ops.start_ns[op] - ops.end_ns[op], row))
    rows, first = np.unique(row[order], return_index=True)
    return op[order[first]], rows
