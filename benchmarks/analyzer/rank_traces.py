"""Makes the traces of several ranks from one recorded trace: with collectives and a straggler."""

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.analyzer.large_trace import parsed, write_trace

_COLLECTIVE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_ELEMENTS = 4096
_LATEST_SHARE = 0.75


def make_rank_traces(source: bytes, ranks: int, events: int, folder: Path) -> list[Path]:
    """Write `ranks` traces of exactly `events` events each to `folder`; returns their paths.

    `source` is Kineto JSON with GPU ops. Its most frequent kernel becomes an all-reduce of all
    ranks. A rank enters the k-th one late by a share of its length that differs from rank to rank
    and from one to the next, and leaves it when all others do; the last rank enters last most
    often. The clocks agree.

    Raises:
        TraceError: `source` holds no complete events.
    """
    paths = []
    for rank in range(ranks):
        document = parsed(source)
        document.pop("decodescope", None)
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        _add_collectives(document["traceEvents"], rank, ranks)
        path = folder / f"rank{rank}.json"
        write_trace(document, events, path)
        paths.append(path)
    return paths


def _add_collectives(events: list[Any], rank: int, ranks: int) -> None:
    kernels = [event for event in events if event.get("cat") == "kernel"]
    counts = Counter(event["name"] for event in kernels)
    most = max(counts, key=lambda name: (counts[name], name), default="")
    replaced = [event for event in kernels if event["name"] == most]
    for number, event in enumerate(sorted(replaced, key=lambda event: Decimal(event["ts"]))):
        turn = (number * 7 + rank * 5) % (2 * ranks)
        late = rank == ranks - 1 and number % 4 != 0
        share = _LATEST_SHARE if late else _LATEST_SHARE * turn / (2 * ranks + 1)
        delay = (Decimal(event["dur"]) * Decimal(share)).quantize(Decimal("0.001"))
        event["name"] = _COLLECTIVE
        event["ts"] = Decimal(event["ts"]) + delay
        event["dur"] = Decimal(event["dur"]) - delay
        event["args"] |= {
            "Collective name": "allreduce",
            "In msg nelems": _ELEMENTS,
            "Out msg nelems": _ELEMENTS,
            "Group size": ranks,
            "dtype": "BFloat16",
            "Process Group Name": "0",
            "Process Group Ranks": str(list(range(ranks))),
        }
