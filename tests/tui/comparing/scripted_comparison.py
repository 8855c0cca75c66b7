"""A comparison's process that says what it is given, and what a comparison on an H200 gives."""

import asyncio
from dataclasses import dataclass, field

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonConfig,
    ComparisonDone,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import Bye
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import Bandwidth, LayerReport
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.comparison import ComparisonLinkEvent
from tests.helpers.answers import answer_of
from tests.helpers.comparison_reports import ACCURACY, range_of, run_of, step_of, window_of

RATES = {"eager": (47.0, 47.4, 46.8), "compiled": (211.0, 214.0, 212.5)}


@dataclass
class ScriptedComparison:
    """Delivers what `say` was called with, and keeps what it was asked for."""

    started: list[ComparisonConfig] = field(default_factory=list)
    cancelled: int = 0
    closed: bool = False
    broken: str = ""

    def __post_init__(self) -> None:
        self._events: asyncio.Queue[ComparisonLinkEvent | None] = asyncio.Queue()

    def say(self, *events: ComparisonLinkEvent | None) -> None:
        for event in events:
            self._events.put_nowait(event)

    async def start(self, config: ComparisonConfig) -> None:
        if self.broken:
            raise MissingRequirement(self.broken)
        self.started.append(config)

    async def receive(self) -> ComparisonLinkEvent | None:
        return await self._events.get()

    async def end(self) -> None:
        self.cancelled += 1

    async def close(self) -> None:
        self.closed = True
        self._events.put_nowait(None)


def window(name: str) -> Report:
    """One profiled step: eager launches op by op, the others replay a graph with fused ranges."""
    fused = name != "eager"
    busy_ns, idle_ns = (4_100_000, 500_000) if fused else (4_300_000, 17_000_000)
    gaps = {"graph_internal": idle_ns} if fused else {"host_wait": idle_ns}
    times = {"nvjet_sm90_tst_64x8": 2_400_000, "flash_fwd_splitkv_kernel": 500_000}
    times |= {"triton_poi_fused_mul_add_3": 1_200_000} if fused else {"void elementwise": 1_400_000}
    kernels = tuple(
        KernelReport(kernel, 32, ns, ns // 32, 0.0, attributed_ns=ns)
        for kernel, ns in times.items()
    )
    roles = {"gate_up": busy_ns // 2, "attention": busy_ns // 4}
    roles["down" if fused else "norm"] = busy_ns // 4
    parts = ("mlp+input_norm",) if fused else ("mlp", "input_norm")
    ranges = [range_of("decode_step", busy_ns, idle_ns, 300, 3)]
    ranges += [range_of(f"decode_step/layer.{i}", busy_ns // 2, idle_ns // 2) for i in range(2)]
    ranges += [
        range_of(f"decode_step/layer.{i}/{part}", busy_ns // 4 // len(parts), 1000)
        for i in range(2)
        for part in parts
    ]
    return window_of(
        [step_of(0, busy_ns + idle_ns, gaps, launch_calls=3 if fused else 679)],
        ranges,
        kernels=kernels,
        answer=answer_of(roles | gaps, limit_ns=600_000, limit_bound="memory"),
        layers=tuple(LayerReport(n, 0, 3 if fused else 41, busy_ns // 2) for n in range(2)),
    )


def comparison(rounds: int, accuracy: bool = False, **names: tuple[float, ...]) -> Comparison:
    """A comparison of the first `rounds` rounds of `names`, else of `RATES`."""
    rates = names or RATES
    mbu = Bandwidth(1e12, 4.1e12, None, 0.25, "measured")
    runs = [
        run_of(name, number, values[number], bandwidth=mbu, accuracy=ACCURACY if accuracy else None)
        for number in range(rounds)
        for name, values in rates.items()
    ]
    return compare_runs(runs, {name: window(name) for name in rates})


def measured(variant: str, round: int, rounds: int = 3) -> tuple[ComparisonLinkEvent, ...]:
    """A run from its beginning to its end."""
    return (
        ComparisonProgress(rounds, round, variant),
        ComparisonProgress(rounds, round, variant, "loading weights"),
        RunMeasured(run_of(variant, round, RATES[variant][round])),
    )


def whole_round(round: int, rounds: int = 3) -> tuple[ComparisonLinkEvent, ...]:
    """A round of every variant, and the comparison after it."""
    events = [event for variant in RATES for event in measured(variant, round, rounds)]
    return (*events, RoundCompared(comparison(round + 1)))


def done(rounds: int = 3) -> tuple[ComparisonLinkEvent, ...]:
    """The end of a comparison with accuracy."""
    return ComparisonDone(comparison(rounds, accuracy=True)), Bye("done"), WorkerDied(0, ())
