"""The rounds of a comparison: every variant once a round, whole rounds kept."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.variants.comparing.jobs import Job, Result, RunDone, RunJob

Say = Callable[[str], None]


class Rounds:
    """Runs `repeats` rounds of `variants`; `run` does one job.

    After `measure`: `runs` are those of whole rounds in the order they ran, `traces` the last whole
    round's by variant, `findings` what went wrong. Traces are written to `work` and, once their
    round is whole, moved to `keep` where that is given.
    """

    def __init__(
        self,
        config: WorkerConfig,
        variants: tuple[str, ...],
        repeats: int,
        work: Path,
        keep: Path | None,
        run: Callable[[Job, Say], Result],
    ) -> None:
        self.runs: list[RunReport] = []
        self.traces: dict[str, Path] = {}
        self.findings: list[Finding] = []
        self.interrupted = False
        self._config = config
        self._variants = variants
        self._repeats = repeats
        self._work = work
        self._keep = keep
        self._run = run
        self._last_rate: dict[str, float] = {}

    def measure(self, say: Say) -> None:
        """Run the rounds.

        Raises:
            DecodescopeError: a variant failed before any round was whole.
            KeyboardInterrupt: before any round was whole.
        """
        for round in range(self._repeats):
            try:
                self._keep_round(round, self._one_round(round, say))
            except DecodescopeError as error:
                if not self.runs:
                    raise
                self._note(
                    "round_left_out", f"round {round + 1} of {self._repeats} is left out: {error}"
                )
            except KeyboardInterrupt:
                if not self.runs:
                    raise
                whole = len(self.runs) // len(self._variants)
                self._note(
                    "interrupted",
                    f"interrupted in round {round + 1} of {self._repeats}: compared are the runs "
                    f"of {whole} whole rounds, without accuracy",
                )
                self.interrupted = True
                return

    def _one_round(self, round: int, say: Say) -> list[RunReport]:
        return [self._one_run(variant, round, say) for variant in self._variants]

    def _one_run(self, variant: str, round: int, say: Say) -> RunReport:
        doing = f"round {round + 1} of {self._repeats}: {variant}"
        if variant in self._last_rate:
            doing += f" ({self._last_rate[variant]:,.0f} tokens/s last)"
        say(doing)
        config = msgspec.structs.replace(self._config, variant=variant)
        job = RunJob(config, str(self._work / _trace_name(variant, round)))
        try:
            done = self._run(job, lambda stage: say(f"{doing}: {stage}"))
        except DecodescopeError as error:
            raise type(error)(f"variant {variant} failed: {error}") from error
        assert isinstance(done, RunDone)
        self._last_rate[variant] = done.report.tokens_per_s
        return msgspec.structs.replace(done.report, round=round)

    def _keep_round(self, round: int, reports: list[RunReport]) -> None:
        traces = {name: self._work / _trace_name(name, round) for name in self._variants}
        if self._keep is not None:
            traces = {name: path.rename(self._keep / path.name) for name, path in traces.items()}
        self.traces = traces
        self.runs += reports

    def _note(self, code: str, message: str) -> None:
        self.findings.append(Finding(code, message))


def _trace_name(variant: str, round: int) -> str:
    """A file name of its own for every variant: a package's may hold a slash."""
    return f"{quote(variant, safe='+')}-round{round}.json.gz"
