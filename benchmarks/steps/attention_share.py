"""The cost of attention inside a whole step at a long context, as a share of the read peak.

Times one captured step of the fused kernels in three ways, which alternate within each round: at
the last position of the context, at position 1 (the same graph with another position on the
device), and without the attention launches. The cost of attention in a layer is the difference
between the first way and another one, divided by the number of layers:

- length: against position 1; the cost of reading the rows, without launches and combination
- launches: against no attention; the whole cost, with its effect on the overlap of its neighbours
- alone: the kernel by itself from cold memory, as `kernels` measures it

Writes benchmarks/results/attention-share.json with the figures of every round. The KV cache holds
random numbers, because times do not depend on the prompt.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from time import sleep
from typing import Any

import msgspec
import rich_click as click
import torch
from rich.table import Table

from benchmarks.harness.processes import require_cuda
from benchmarks.harness.records import RESULTS, write_record
from benchmarks.harness.tables import figures_table, share_cell
from benchmarks.harness.turns import Check, Contestant, take_turns
from benchmarks.kernels.kernel_bench import TOLERANCES, Conditions, measure_case
from benchmarks.kernels.kernel_cases import kernel_cases
from benchmarks.kernels.operands import Operands
from benchmarks.kernels.report import KernelFigures, LaunchTimes
from decodescope.analyzer.text.formatting import UNKNOWN, bytes_size, microseconds
from decodescope.cli.options import number_option
from decodescope.cli.output import print_table
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.variants.machine.clock import Call, DeviceClock
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import build_fused
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import StepProgram
from decodescope.variants.tuning.report import RoundSpread

DTYPE: DType = "bf16"
SHORT_POSITION = 1
ROUNDS = 9
REPLAYS = 40
# Steps of an 8B model without a pause take an H200 to 700 W within a second. It then lowers its
# clock by up to a third, and steps at different clocks would be compared.
REST_S = 0.25


class Cost(msgspec.Struct, frozen=True):
    """Attention in one layer: nanoseconds of each round, and the bytes of K and V that it reads."""

    ns_per_layer: RoundSpread
    bytes: int
    bytes_per_s: float | None
    share_of_peak: float | None


def attention_cost(
    with_ns: Sequence[float],
    less_ns: Sequence[float],
    layers: int,
    bytes_read: int,
    peak_bytes_per_s: float,
) -> Cost:
    """The cost from steps with attention and steps with less of it, round by round; no rate if the
    noise hides the difference."""
    pairs = zip(with_ns, less_ns, strict=True)
    cost_ns = RoundSpread.of([(more - less) / layers for more, less in pairs])
    rate = bytes_read * 1e9 / cost_ns.median if cost_ns.median > 0 else None
    return Cost(cost_ns, bytes_read, rate, None if rate is None else rate / peak_bytes_per_s)


def row_bytes(plan: StepPlan) -> int:
    """Bytes of K and V of one position in one layer, all sequences."""
    return sum(one[:, :, 0].nbytes for one in plan.cache.layer(0))


def step_ways(plan: StepPlan, position: int, clock: DeviceClock) -> dict[str, Call]:
    """The three ways to run the step; each sets the position, which a step advances by one."""
    operations = step_operations(plan)
    others = [one for one in operations if not isinstance(one.operation, DecodeAttention)]
    plan.buffers.position.fill_(SHORT_POSITION)
    step, bare_step = (
        clock.capture(StepProgram(wanted, plan.ranges, plan.pdl).run)
        for wanted in (operations, others)
    )

    def at(start: int, replay: Call) -> None:
        plan.buffers.position.fill_(start)
        replay()

    return {
        "long": partial(at, position, step),
        "short": partial(at, SHORT_POSITION, step),
        "without": partial(at, position, bare_step),
    }


def time_ways(
    ways: Mapping[str, Call], clock: DeviceClock, rounds: int = ROUNDS, rest_s: float = REST_S
) -> dict[str, tuple[float, ...]]:
    """For each way the median time of each round; a round times every way, one after the other,
    each after a rest."""

    def contestant(name: str, way: Call) -> Contestant:
        def read() -> list[float]:
            sleep(rest_s)
            return [median(clock.each_ns(way, REPLAYS))]

        return Contestant(name, Check, lambda: {name: read})

    outcomes = take_turns([contestant(name, way) for name, way in ways.items()], rounds)
    return {name: tuple(outcome.readings(name)) for name, outcome in outcomes.items()}


def attention_alone(plan: StepPlan, position: int, peak: ReadPeak) -> KernelFigures:
    """The kernel by itself, as `kernels` measures it, with the step's tile."""
    batch = plan.buffers.x.shape[0]
    gpu = torch.cuda.get_device_properties(0)
    pdl = can_overlap(torch.device("cuda"))
    conditions = Conditions(gpu.L2_cache_size, peak, TOLERANCES[DTYPE], pdl)
    operands = Operands(plan.parts, batch, position, plan.tiles, "cuda")
    (case,) = (case for case in kernel_cases(operands) if case.use.operation == "attention")
    return measure_case(case, conditions, DeviceClock())


@torch.no_grad()
def measured(model: str, context: int, batch: int, peak: ReadPeak) -> dict[str, Any]:
    """Every recorded figure."""
    workload = DecodeWorkload(batch=batch, context=context, dtype=DTYPE)
    loaded = load_model(resolve_model(model), "cuda", DTYPE, workload=workload)
    plan = build_fused(VariantSpec("fused"), loaded, workload, "cuda").plan
    for cache in (*plan.cache.k, *plan.cache.v):
        cache.normal_()
    position, clock, layers = context - 1, DeviceClock(), len(plan.parts.layers)
    times = time_ways(step_ways(plan, position, clock), clock)
    bytes_per_row = row_bytes(plan)

    def cost(less: str, rows: int) -> Cost:
        read = rows * bytes_per_row
        return attention_cost(times["long"], times[less], layers, read, peak.bytes_per_s)

    return {
        "model": model,
        "dtype": DTYPE,
        "batch": batch,
        "position": position,
        "short_position": SHORT_POSITION,
        "layers": layers,
        "tile": plan.tiles["attention"],
        "replays_per_round": REPLAYS,
        "rest_s": REST_S,
        "measured_peak_bytes_per_s": peak.bytes_per_s,
        "step_ns": {name: RoundSpread.of(found) for name, found in times.items()},
        "length": cost("short", position - SHORT_POSITION),
        "launches": cost("without", context),
        "alone": attention_alone(plan, position, peak),
    }


def share_table(record: Mapping[str, Any]) -> Table:
    """One row for each definition of the cost."""
    title = f"attention of {record['model']}, batch {record['batch']}, position"
    title += f" {record['position']}: read peak {bytes_size(record['measured_peak_bytes_per_s'])}/s"
    columns = ("cost of a layer", "µs", "range", "bytes", "rate", "of peak")
    table = figures_table(title, *columns, names=1)
    for name in ("length", "launches"):
        cost: Cost = record[name]
        ns = cost.ns_per_layer
        range_us = f"{ns.min / 1e3:.2f} to {ns.max / 1e3:.2f}"
        rates = _rate_cells(cost.bytes, cost.bytes_per_s, cost.share_of_peak)
        table.add_row(name, f"{ns.median / 1e3:.2f}", range_us, *rates)
    alone: KernelFigures = record["alone"]
    for name, launch in (("alone", alone.serial), ("alone, PDL", alone.overlapped)):
        if launch is not None:
            table.add_row(name, *_launch_cells(alone.bytes_moved, launch))
    if alone.error is not None:
        table.add_row("alone", alone.error)
    return table


def _launch_cells(bytes_moved: int, launch: LaunchTimes) -> tuple[str, ...]:
    range_us = f"{microseconds(launch.p10_ns)} to {microseconds(launch.p90_ns)}"
    rates = _rate_cells(bytes_moved, launch.bytes_per_s, launch.share_of_peak)
    return (microseconds(launch.median_ns), range_us, *rates)


def _rate_cells(size: int, bytes_per_s: float | None, share: float | None) -> tuple[str, str, str]:
    rate = UNKNOWN if bytes_per_s is None else f"{bytes_size(bytes_per_s)}/s"
    return bytes_size(size), rate, share_cell(share)


@click.command("attention-share")
@click.option("--model", metavar="M", default="llama-3.1-8b@random", show_default=True)
@number_option(
    "--context",
    type=click.IntRange(SHORT_POSITION + 2),
    default=8192,
    show_default=True,
    help="Tokens that attention sees.",
)
@number_option("--batch", default=1, show_default=True)
def command(model: str, context: int, batch: int) -> int:
    """The cost of attention in a layer of the whole step, and of its kernel alone; needs a GPU."""
    require_cuda("attention-share")
    peak = read_peak()
    if peak is None:
        return 3
    record = measured(model, context, batch, peak)
    write_record(RESULTS / "attention-share.json", record)
    print_table(record, share_table)
    return 0
