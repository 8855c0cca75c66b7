"""What a comparison and its child processes say to each other: one job in, frames out.

The job is JSON on the child's stdin. The child answers on its stdout with frames of
`analyzer.protocol`: any number of `Progress`, then its result or a `Failure`. Plain structures;
nothing here imports torch.
"""

from msgspec import Struct

from decodescope.analyzer.protocol import Failure, Progress, WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy, RunReport

ACCURACY_MISSING = "accuracy_missing"


class RunJob(Struct, frozen=True, tag="run"):
    """Measure `config.variant` once; the profiled window goes to `trace_path`."""

    config: WorkerConfig
    trace_path: str


class AccuracyJob(Struct, frozen=True, tag="accuracy"):
    """Score `variants` on `text`; `config.variant` plays no part."""

    config: WorkerConfig
    variants: tuple[str, ...]
    text: str | None


class RunDone(Struct, frozen=True, tag="run_done"):
    report: RunReport


class AccuracyDone(Struct, frozen=True, tag="accuracy_done"):
    """Accuracy by variant; `findings` says why a variant has none."""

    accuracies: dict[str, Accuracy]
    findings: tuple[Finding, ...]


Job = RunJob | AccuracyJob
Result = RunDone | AccuracyDone
JobMessage = Progress | Failure | RunDone | AccuracyDone
