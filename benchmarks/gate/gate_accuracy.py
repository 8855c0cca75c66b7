"""How often `gate` is right: changes of 0, 1, 3 and 10 % planted into real traces.

The traces of a folder are runs of one kind, each in a process of its own. A draw takes two sides of
five of them, without replacement, and plants a change into the second: the times of all its steps
and of their parts, which are all that a gate keeps of a trace, take that much longer. So the noise
is that of the traces, within and between them. Writes benchmarks/results/gate-accuracy.json, with
the figures of simulated noise beside.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import rich_click as click
from rich.table import Table

from benchmarks.gate.noise_shapes import all_simulated
from benchmarks.harness.records import RESULTS, ROOT, write_record
from benchmarks.harness.tables import figures_table, share_cell
from decodescope import analyzer
from decodescope.analyzer.comparing.gate import Allowed, gate
from decodescope.analyzer.comparing.gate_samples import measured_trace, subjects_of
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.schema.gate_report import BASELINE_VERSION, Baseline, Sample, Subject
from decodescope.analyzer.text.formatting import duration
from decodescope.cli.options import FILE, device_option, number_option, variant_option
from decodescope.cli.output import print_table, say

CHANGES_PERCENT = (0, 1, 3, 10)
TRACES_A_SIDE = 5
RECORDER = ("-m", "benchmarks.gate.record_trace")
_SEED = 20_261_127


class Change(msgspec.Struct, frozen=True):
    """The shares of the draws in which the gate called a planted change slower, within what is
    allowed (0 %), or undecided."""

    percent: int
    slower: float
    within: float
    undecided: float


class Kind(msgspec.Struct, frozen=True):
    """The traces of the folder `name`. `noise_percent` is the standard deviation of their step
    times, as a share of the mean; `range_percent` the largest less the smallest."""

    name: str
    conditions: dict[str, str]
    traces: int
    steps: int
    step_ns: tuple[int, ...]
    noise_percent: float
    range_percent: float
    changes: tuple[Change, ...]


def planted(sample: Sample, percent: float) -> Sample:
    """The sample with all its times that much longer."""
    factor = 1 + percent / 100
    return Sample(
        sample.path,
        tuple(round(ns * factor) for ns in sample.step_times_ns),
        {
            part: tuple(round(ns * factor) for ns in times_ns)
            for part, times_ns in sample.part_times_ns.items()
        },
    )


def measured_kind(name: str, subject: Subject, draws: int) -> Kind:
    """The figures of the traces of one kind, the same at each call.

    Raises:
        InputError: too few traces for two sides.
    """
    samples, needed = subject.samples, 2 * TRACES_A_SIDE
    if len(samples) < needed:
        raise InputError(
            f"{name}: holds {len(samples)} traces; two sides of {TRACES_A_SIDE} need {needed}"
        )
    generator = np.random.default_rng(_SEED)
    orders = [generator.permutation(len(samples))[:needed].tolist() for _ in range(draws)]
    step_ns = tuple(statistics.median_low(one.step_times_ns) for one in samples)
    mean_ns = statistics.fmean(step_ns)
    return Kind(
        name,
        subject.conditions,
        len(samples),
        statistics.median_low(len(one.step_times_ns) for one in samples),
        step_ns,
        statistics.stdev(step_ns) / mean_ns * 100,
        (max(step_ns) - min(step_ns)) / mean_ns * 100,
        tuple(_change(subject, orders, percent) for percent in CHANGES_PERCENT),
    )


def _change(subject: Subject, orders: Sequence[Sequence[int]], percent: int) -> Change:
    verdicts: Counter[str] = Counter()
    for order in orders:
        drawn = [subject.samples[index] for index in order]
        base, now = drawn[:TRACES_A_SIDE], drawn[TRACES_A_SIDE:]
        baseline = Baseline(BASELINE_VERSION, "drawn", "", (_side(subject, base),))
        changed = _side(subject, [planted(sample, percent) for sample in now])
        verdicts[gate(baseline, (changed,), Allowed()).verdict] += 1
    shares = (verdicts[verdict] / len(orders) for verdict in ("slower", "within", "undecided"))
    return Change(percent, *shares)


def _side(subject: Subject, samples: Sequence[Sample]) -> Subject:
    return Subject(subject.name, subject.conditions, tuple(samples))


def subject_of(folder: Path) -> Subject:
    """The traces of a folder, which are of one kind.

    Raises:
        InputError: there are none, or they are of different work.
        DecodescopeError: one is no trace.
    """
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    if not paths:
        raise InputError(f"{folder}: holds no traces; name a folder of traces, or give --make")
    (subject,) = subjects_of(
        measured_trace(analyzer.analyze(analyzer.load(path))) for path in paths
    )
    return subject


def make_traces(folder: Path, count: int, arguments: Sequence[str]) -> None:
    """Record traces in the folder until it holds so many; each run is a process of its own.

    Raises:
        DecodescopeError: a run failed; stderr says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder.resolve() / f"{number:03}.json.gz"
        if path.exists():
            continue
        say(f"trace {number + 1} of {count}")
        with running([sys.executable, *RECORDER, *arguments, str(path)], cwd=ROOT) as process:
            if process.wait():
                raise DecodescopeError(f"{path}: its run failed; see above")


def kinds_table(kinds: Sequence[Kind]) -> Table:
    """One row for each kind of trace."""
    found = [f"+{percent} %" for percent in CHANGES_PERCENT]
    table = figures_table("called slower", "traces", "step", "noise", *found, names=1)
    for kind in kinds:
        table.add_row(
            f"{kind.traces} of {kind.name}",
            duration(statistics.median_low(kind.step_ns)),
            f"{kind.noise_percent:.2f} %",
            *(share_cell(change.slower) for change in kind.changes),
        )
    return table


@click.command("gate-accuracy")
@click.argument("folders", metavar="FOLDER…", nargs=-1, required=True, type=FILE)
@number_option("--draws", type=click.IntRange(1), default=200, show_default=True)
@number_option(
    "--make",
    "count",
    type=click.IntRange(1),
    help="First record traces in the only FOLDER until it holds so many.",
)
@click.option("--model", metavar="M", default="llama-3.2-1b@random", show_default=True)
@variant_option
@device_option
@number_option("--context", default=128, show_default=True)
@number_option("--steps", default=20, show_default=True, help="The steps of a trace.")
def command(
    folders: tuple[Path, ...],
    draws: int,
    count: int | None,
    model: str,
    variant: str,
    device: str | None,
    context: int,
    steps: int,
) -> None:
    """How often gate is right: changes planted into the traces of each FOLDER, runs of one kind."""
    if count is not None:
        if len(folders) > 1:
            raise InputError(f"--make {count}: {len(folders)} folders are given; name one")
        arguments = (model, variant, device or "cuda", str(context), str(steps))
        make_traces(folders[0], count, arguments)
    kinds = [measured_kind(folder.resolve().name, subject_of(folder), draws) for folder in folders]
    found = {"draws": draws, "traces_a_side": TRACES_A_SIDE, "kinds": kinds}
    write_record(RESULTS / "gate-accuracy.json", {**found, "simulated": all_simulated()})
    print_table(kinds, kinds_table)
