"""The messages between a comparison's process and the app, in frames of `analyzer.protocol`.

The app sends `Quit`, which interrupts the comparison. The process answers with what it does and
with what it has measured, and ends with `ComparisonDone` or `Failure`, then `Bye`.
"""

from msgspec import Struct

from decodescope.analyzer.protocol.messages import Bye, Failure, WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.run_report import RunReport


class ComparisonConfig(Struct, frozen=True):
    """The comparison to make, one JSON argument on the process's command line: `variants` of the
    workload of `config`, whose own variant is ignored, each measured once in each of `rounds`."""

    config: WorkerConfig
    variants: tuple[str, ...]
    rounds: int


class ComparisonProgress(Struct, frozen=True, tag="doing"):
    """`variant` is measured in `round` (from 0) of `rounds`, and is at `stage` ("" as it begins);
    `last_tokens_per_s` is its rate in the round before. Without a round, accuracy is scored; with
    neither round nor stage, the runs are compared."""

    rounds: int
    round: int | None = None
    variant: str = ""
    stage: str = ""
    last_tokens_per_s: float | None = None

    def describe(self) -> str:
        if self.round is None:
            return f"accuracy: {self.stage}" if self.stage else "comparing"
        text = f"round {self.round + 1} of {self.rounds}: {self.variant}"
        if self.last_tokens_per_s is not None:
            text += f" ({self.last_tokens_per_s:,.0f} tokens/s last)"
        return f"{text}: {self.stage}" if self.stage else text


class RunMeasured(Struct, frozen=True, tag="measured"):
    """One run is complete; its round may not be."""

    report: RunReport


class RoundCompared(Struct, frozen=True, tag="round"):
    """The comparison of the complete rounds so far, without accuracy."""

    comparison: Comparison


class ComparisonDone(Struct, frozen=True, tag="compared"):
    """The comparison of all complete rounds; a finding says so if it was interrupted."""

    comparison: Comparison


ComparisonEvent = ComparisonProgress | RunMeasured | RoundCompared
ComparisonMessage = ComparisonEvent | ComparisonDone | Failure | Bye
