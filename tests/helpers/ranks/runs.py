"""Ranks of one run with known waits, as traces: what each entered when, and what it left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decodescope.analyzer import analyze
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.reports.rank_analysis import ranks_communication
from decodescope.analyzer.schema.communication_report import (
    ClockSource,
    CollectiveReport,
    RankCommunication,
    SkewReport,
    Straggler,
)
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, call, document, op, read, span

BASE = 1_790_857_026_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PER_STEP = 8
_WORK_NS = 30_000


@dataclass(frozen=True)
class Run:
    """int64 [ranks, collectives]: when each rank enters each collective; when all leave it."""

    start_ns: np.ndarray
    end_ns: np.ndarray


def a_run(
    ranks: int,
    collectives: int,
    late_ns: np.ndarray | None = None,
    transfer_ns: int = 8_000,
    seed: int = 0,
) -> Run:
    """Every rank works for 30 µs, up to 10 µs more (drawn each time) and `late_ns[rank]` after it
    left a collective, then enters the next. All leave together, `transfer_ns` after the last one
    entered."""
    draw = np.random.default_rng(seed)
    start_ns = np.zeros((ranks, collectives), dtype=np.int64)
    end_ns = np.zeros(collectives, dtype=np.int64)
    late = np.zeros(ranks, dtype=np.int64) if late_ns is None else late_ns
    left = 0
    for k in range(collectives):
        start_ns[:, k] = left + _WORK_NS + draw.integers(0, 10_000, ranks) + late
        end_ns[k] = left = int(start_ns[:, k].max()) + transfer_ns
    return Run(start_ns, end_ns)


def rank_events(
    run: Run,
    rank: int,
    *,
    device: int = 0,
    first: int = 0,
    without: Sequence[int] = (),
    until: int | None = None,
    name: str = ALL_REDUCE,
    beside_ns: int = 0,
    early_ns: int = 0,
    said: Mapping[str, object] | None = None,
) -> list[Event]:
    """The events of one rank of `run` on `device`. They are of collectives `first` to `until`
    except `without`, a step for each 8 of them (counted over the whole run), and the work before
    each. `beside_ns` of work on another stream run beside the begin of each one. A collective is
    launched `early_ns` before the work before it has ended. `said` is what the kernels say of their
    messages."""
    events: list[Event] = []
    last = run.start_ns.shape[1] if until is None else until
    left = [0, *run.end_ns.tolist()]
    tid = device + 1
    for k in range(first, last):
        ids = 2 * k + 10**6 * rank
        at, start, end = left[k], int(run.start_ns[rank, k]), left[k + 1]
        if k % PER_STEP == 0 or k == first:
            to = left[min((k // PER_STEP + 1) * PER_STEP, last)]
            events.append(span(at, to - 1, f"decode_step_{k // PER_STEP}", tid=tid))
        events.append(call(at + 10, at + 20, ids + 1, tid=tid))
        worked = start if early_ns else start - 100
        events.append(op(at + 1_000, worked, ids + 1, name="gemm", device=device))
        if k not in without:
            events.append(call(at + 30, at + 40, ids + 2, tid=tid))
            own = start - early_ns, end, ids + 2
            events.append(op(*own, name=name, device=device, **(said or {})))
            if beside_ns:
                beside = start, start + min(beside_ns, end - start), ids + 2
                events.append(op(*beside, name="side", device=device, stream=9))
    return events


def rank_document(run: Run, rank: int, *, clock_ns: int = 0, **changes: Any) -> bytes:
    """The trace file of one rank of `run`, whose clock is `clock_ns` ahead."""
    info = {"backend": "nccl", "rank": rank, "world_size": len(run.start_ns)}
    events = rank_events(run, rank, **changes)
    return document(events, baseTimeNanoseconds=BASE + clock_ns, distributedInfo=info)


def gpus_document(run: Run, **changes: Any) -> bytes:
    """One trace file of all ranks of `run`, each with the GPU of its number."""
    events = [
        one
        for rank in range(len(run.start_ns))
        for one in rank_events(run, rank, device=rank, **changes)
    ]
    return document(events, baseTimeNanoseconds=BASE)


def rank_trace(run: Run, rank: int, **changes: Any) -> Trace:
    """What is read from `rank_document`."""
    return read(rank_document(run, rank, **changes))


def rank_files(folder: Path, run: Run, **changes: Any) -> list[Path]:
    """The files of all ranks of `run`."""
    paths = [folder / f"rank{rank}.json" for rank in range(len(run.start_ns))]
    for rank, path in enumerate(paths):
        path.write_bytes(rank_document(run, rank, **changes))
    return paths


class RankFigures(NamedTuple):
    """The communication of ranks, their reports, and the findings about their clocks."""

    ranks: tuple[RankCommunication, ...]
    reports: tuple[Report, ...]
    clock: ClockSource | None
    straggler: Straggler | None
    no_straggler: str
    collectives: tuple[CollectiveReport, ...]
    skew: SkewReport | None
    findings: tuple[Finding, ...]


def figures(traces: Sequence[Trace]) -> RankFigures:
    """The figures across ranks of `traces`, put on one clock if they can be."""
    ranks = merge_ranks(traces)
    analyses = [(rank, analyze(trace)) for rank, trace in ranks.ranks]
    report, findings = ranks_communication(
        [(rank, one.trace, one.steps) for rank, one in analyses], ranks.merged is not None
    )
    return RankFigures(
        ranks=report.ranks,
        reports=tuple(one.report for _, one in analyses),
        clock=report.clock,
        straggler=report.straggler,
        no_straggler=report.no_straggler,
        collectives=report.collectives,
        skew=report.skew,
        findings=findings,
    )
