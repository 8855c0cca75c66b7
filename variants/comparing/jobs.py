"""The messages between a comparison and its child processes: one job in, frames out.

The job is JSON on the child's stdin. The child answers on stdout with frames of
`analyzer.protocol.messages`: any number of `Progress`, then its result or a `Failure`.
"""

from msgspec import Struct

from decodescope.analyzer.protocol.messages import Failure, Progress, WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy, RunReport

ACCURACY_MISSING = "accuracy_missing"


class RunJob(Struct, frozen=True, tag="run"):
    """Measure `config.variant` once, and write the profiled window to `trace_path`, if any."""

    config: WorkerConfig
    trace_path: str | None


class AccuracyJob(Struct, frozen=True, tag="accuracy"):
    """Score `variants` on `text`; `config.variant` is ignored."""

    config: WorkerConfig
    variants: tuple[str, ...]
    text: str | None


class RunDone(Struct, frozen=True, tag="run_done"):
    """The result of a `RunJob`."""

    report: RunReport


class AccuracyDone(Struct, frozen=True, tag="accuracy_done"):
    """Accuracy by variant; `findings` says why a variant has none."""

    accuracies: dict[str, Accuracy]
    findings: tuple[Finding, ...]


Job = RunJob | AccuracyJob
Result = RunDone | AccuracyDone
JobMessage = Progress | Failure | RunDone | AccuracyDone
