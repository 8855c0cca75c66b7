"""Whether the clocks of several ranks agree: collectives must overlap in time.

No rank can end an all-reduce, all-gather or reduce-scatter before every rank of its group has begun
it. So the same collective on two ranks overlaps in time, unless the two clocks differ.
"""

import re
from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import Int64s, Trace

# Kernels are called ncclDevKernel_AllReduce_Sum_bf16_RING_LL since NCCL 2.19, ncclKernel_… before.
_COLLECTIVE = re.compile(r"(?:nccl|rccl)\w*Kernel_(AllReduce|AllGather|ReduceScatter)")


def clock_findings(ranks: Sequence[tuple[int, Trace]]) -> list[Finding]:
    """A finding for each rank with collectives that do not overlap with those of the first rank.

    The k-th collective of one rank is matched with the k-th of the other; ranks with other kinds or
    numbers of collectives are skipped. The clocks differ by at least the largest distance between
    the two intervals of one collective.
    """
    if not ranks:
        return []
    (first, trace), *others = ranks
    kinds, start_ns, end_ns = _collectives(trace)
    findings = []
    for rank, other in others:
        other_kinds, other_start_ns, other_end_ns = _collectives(other)
        if other_kinds != kinds or not kinds:
            continue
        apart_ns = np.maximum(other_start_ns - end_ns, start_ns - other_end_ns)
        apart = int(np.count_nonzero(apart_ns > 0))
        if apart:
            findings.append(
                Finding(
                    "clocks_differ",
                    f"{apart} of {len(kinds)} collectives of rank {rank} do not overlap with rank "
                    f"{first}'s: the two clocks differ by at least {apart_ns.max() / 1e6:.3f} ms, "
                    "or the ranks are of different groups or steps; times across them say nothing",
                )
            )
    return findings


def _collectives(trace: Trace) -> tuple[list[str], Int64s, Int64s]:
    """The kind, start and end (wall clock) of each collective, in order of start."""
    kind_of = [_COLLECTIVE.search(name) for name in trace.names]
    named = np.array([kind is not None for kind in kind_of], dtype=np.bool_)
    mine = np.flatnonzero(named[trace.ops.name])
    kinds = [kind[1] for name in trace.ops.name[mine].tolist() if (kind := kind_of[name])]
    ops = trace.ops
    return kinds, ops.start_ns[mine] + trace.base_ns, ops.end_ns[mine] + trace.base_ns
