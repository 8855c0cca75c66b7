"""The windows of ranks of our own: planted waits in the form that our captures have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from decodescope.analyzer.capture.profiler_session import STEP_RANGE
from decodescope.analyzer.schema.report import CaptureInfo
from tests.helpers.kineto_events import document
from tests.helpers.ranks.runs import BASE, Run, rank_events

STEPS = 3
CAPTURE = CaptureInfo(
    device="cuda",
    device_name="NVIDIA H200",
    model="llama-3.2-1b@random",
    weights="random",
    variant="fused+graph",
    dtype="bf16",
    batch=1,
    context=128,
    position=160,
    steps=STEPS,
    bytes_per_step=1_200_000_000,
    unprofiled_step_ns=600_000,
    decodescope_version="1",
    measured_peak_bytes_per_s=4.2e12,
    flops_per_step=2_000_000_000,
    tp=2,
)


def own_files(
    folder: Path, run: Run, captures: Sequence[CaptureInfo] = (CAPTURE, CAPTURE), **changes: Any
) -> list[Path]:
    """The file of each rank of `run`, which has `STEPS` steps, with its capture."""
    paths = []
    for rank, capture in enumerate(captures):
        events = rank_events(run, rank, **changes)
        for one in events:
            if one["name"].startswith("decode_step_"):
                one["name"] = STEP_RANGE
        paths.append(folder / f"window.rank{rank}.json")
        info = {"backend": "nccl", "rank": rank, "world_size": len(captures)}
        block = msgspec.to_builtins(capture)
        keys = {"baseTimeNanoseconds": BASE, "distributedInfo": info, "decodescope": block}
        paths[-1].write_bytes(document(events, **keys))
    return paths
