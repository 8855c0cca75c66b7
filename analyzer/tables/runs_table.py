"""The runs of a comparison, in the order they ran."""

from collections.abc import Sequence

from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.tables.columns import (
    BYTES_PER_S,
    COUNT,
    DURATION,
    NUMBER,
    PERCENT,
    RATE,
    TEXT,
    Column,
    Table,
)

_COLUMNS: tuple[Column[RunReport], ...] = (
    Column("variant", "variant", TEXT, "The variant."),
    Column("round", "round", COUNT, "The round."),
    Column(
        "tokens_per_s",
        "tokens/s",
        RATE,
        "Tokens of all sequences a second, without a profiler.",
        text=lambda run: "interpreted" if run.interpreted else RATE.text(run.tokens_per_s),
        always=True,
    ),
    Column("step_ns.p50", "step p50", DURATION, "The median step time."),
    Column("step_ns.p90", "step p90", DURATION, "90 % of the steps take at most that long."),
    Column("step_ns.p99", "step p99", DURATION, "99 % of the steps take at most that long."),
    Column("prefill_ns", "prefill", DURATION, "The time of the prefill."),
    Column("timed_steps", "timed steps", COUNT, "The steps without a profiler."),
    Column("launch_calls_per_step", "launches", NUMBER, "Launch calls of a profiled step."),
    Column("gpu_ops_per_step", "GPU ops", NUMBER, "GPU ops of a profiled step."),
    Column("gpu_idle_fraction", "idle", PERCENT, "Idle ÷ window of the profiled steps."),
    Column(
        "bandwidth.achieved_bytes_per_s",
        "read rate",
        BYTES_PER_S,
        "The bytes a step must read ÷ its time.",
    ),
    Column("bandwidth.mbu", "MBU", PERCENT, "That rate ÷ the peak."),
)


def runs_table(runs: Sequence[RunReport]) -> Table[RunReport]:
    """One row for each run."""
    return Table("runs", _COLUMNS, runs, key=lambda run: (run.variant, run.round))
