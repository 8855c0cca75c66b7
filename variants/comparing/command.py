"""`decodescope compare`: measures several variants of one model in turn, and compares them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonEvent,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.io.output_paths import make_folder
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.variants.comparing.job_process import (
    ACCURACY_MISSING,
    AccuracyDone,
    AccuracyJob,
    Job,
    Result,
    RunDone,
    RunJob,
    run_job,
)
from decodescope.variants.machine.environment import choose_device
from decodescope.variants.measuring.request import read_request
from decodescope.variants.parallel.place import rank_files
from decodescope.variants.registry import is_interpreted

Tell = Callable[[ComparisonEvent], None]
RunJobs = Callable[[Job, Callable[[str], None]], Result]


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The variants to compare. `config` says what is decoded; its `variant` is ignored.

    `text` is scored for accuracy (None: `accuracy.scored_text` chooses one). Traces are kept
    in the folder `keep`, created if missing, as <variant>-round<i>.json.gz; with None they are
    deleted. With `each_round`, the runs so far are compared after each complete round too.
    """

    config: WorkerConfig
    variants: tuple[str, ...]
    repeats: int
    text: str | None = None
    keep: Path | None = None
    each_round: bool = False

    def config_of(self, variant: str) -> WorkerConfig:
        return msgspec.structs.replace(self.config, variant=variant)


def compare_variants(request: CompareRequest, tell: Tell, run: RunJobs = run_job) -> Comparison:
    """Measure the variants in turn, round by round (A B C A B C ...), each in a new process.

    A new process for every run matches what a user's run costs: it includes one-time costs, the
    interval covers the variation between processes, a crash loses no other run, and the GPU memory
    is freed. A run that fails in the first round ends the comparison; in a later round that round
    is left out for every variant, and a finding says so. Ctrl-C ends the comparison early; the
    complete rounds, if any, are compared. Accuracy is scored at the end, in one more process.
    `tell` is called with what happens, `run` does one job.

    Raises:
        InputError: fewer than two variants, one named twice, `repeats` below 1, an empty text, or
            a folder that cannot be written to; or as `read_request`.
        MissingRequirement: as `read_request`, or a variant failed in the first round.
        KeyboardInterrupt: before a complete round was measured.
    """
    request = replace(request, variants=_checked_variants(request))
    device = choose_device(request.config.device)
    interpreted = tuple(name for name in request.variants if is_interpreted(name, device))
    if request.keep is not None:
        make_folder(request.keep, "--out")
    with WorkFolder() as work:
        rounds = _Rounds(request, interpreted, Path(work), run, tell)
        rounds.measure()
        accuracies = {} if rounds.interrupted else rounds.score()
        tell(ComparisonProgress(request.repeats))
        return rounds.compared(accuracies)


def _checked_variants(request: CompareRequest) -> tuple[str, ...]:
    """The variants by their own names, checked as far as possible before the first run."""
    listed = ",".join(request.variants)
    if len(request.variants) < 2:
        raise InputError(
            f"--variants {listed}: a comparison needs at least two, such as eager,compiled; for "
            "one, use decodescope run"
        )
    if request.repeats < 1:
        raise InputError(f"--repeats {request.repeats}: must be at least 1")
    if request.text is not None and not request.text.strip():
        raise InputError("--text: the text is empty")
    names = []
    for variant in request.variants:
        name = read_request(request.config_of(variant)).variant.name
        if name in names:
            raise InputError(
                f"--variants {listed}: {name} is named twice; name each once (the interval covers "
                "how much equal runs differ; raise --repeats to narrow it)"
            )
        names.append(name)
    return tuple(names)


@dataclass
class _Rounds:
    """Runs the rounds of a request; `run` does one job.

    After `measure`, `runs` are those of the complete rounds in the order they ran, `traces` those
    of the last complete round by variant (of several ranks, rank 0's), and `findings` the problems.
    Traces are written to `work`, and copied to the request's folder when their round is complete.
    Variants that are `interpreted` are neither timed nor profiled.
    """

    request: CompareRequest
    interpreted: tuple[str, ...]
    work: Path
    run: RunJobs
    tell: Tell
    runs: list[RunReport] = field(default_factory=list)
    traces: dict[str, Path] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    interrupted: bool = False
    _windows: dict[Path, Report] = field(default_factory=dict)
    _last_rates: dict[str, float | None] = field(default_factory=dict)

    def measure(self) -> None:
        repeats = self.request.repeats
        try:
            for round in range(repeats):
                self._measure_round(round)
                if self.request.each_round:
                    self.tell(RoundCompared(self.compared({})))
        except KeyboardInterrupt:
            if not self.runs:
                raise
            complete = len(self.runs) // len(self.request.variants)
            message = (
                f"interrupted in round {round + 1} of {repeats}: comparing the runs "
                f"of {complete} complete rounds, without accuracy"
            )
            self.findings.append(Finding("interrupted", message))
            self.interrupted = True

    def _measure_round(self, round: int) -> None:
        try:
            reports = [self._measured(name, round) for name in self.request.variants]
            traces = {
                name: rank_files(self._trace_path(name, round), self.request.config.tp)
                for name in self.request.variants
                if name not in self.interpreted
            }
            if self.request.keep is not None:
                for name, windows in traces.items():
                    kept = [self.request.keep / window.name for window in windows]
                    for window, file in zip(windows, kept, strict=True):
                        write_atomically(file, window.read_bytes())
                    traces[name] = kept
        except DecodescopeError as error:
            if not self.runs:
                raise
            message = f"round {round + 1} of {self.request.repeats} is left out: {error}"
            self.findings.append(Finding("round_left_out", message))
        else:
            self.traces = {name: windows[0] for name, windows in traces.items()}
            self.runs += reports

    def _measured(self, variant: str, round: int) -> RunReport:
        last = self._last_rates.get(variant)
        doing = ComparisonProgress(self.request.repeats, round, variant, last_tokens_per_s=last)
        self.tell(doing)
        path = None if variant in self.interpreted else str(self._trace_path(variant, round))
        job = RunJob(self.request.config_of(variant), path)
        try:
            result = self.run(
                job, lambda stage: self.tell(msgspec.structs.replace(doing, stage=stage))
            )
        except DecodescopeError as error:
            raise type(error)(f"variant {variant} failed: {error}") from error
        assert isinstance(result, RunDone)
        self._last_rates[variant] = result.report.tokens_per_s
        report = msgspec.structs.replace(result.report, round=round)
        self.tell(RunMeasured(report))
        return report

    def _trace_path(self, variant: str, round: int) -> Path:
        """A path unique to the variant, whose own name may contain a slash."""
        return self.work / f"{quote(variant, safe='+')}-round{round}.json.gz"

    def score(self) -> dict[str, Accuracy]:
        variants, repeats = self.request.variants, self.request.repeats
        job = AccuracyJob(self.request.config_of(variants[0]), variants, self.request.text)
        try:
            result = self.run(
                job, lambda stage: self.tell(ComparisonProgress(repeats, stage=stage))
            )
        except KeyboardInterrupt:
            message = "interrupted while accuracy was scored: none is reported"
            self.findings.append(Finding("interrupted", message))
            return {}
        except DecodescopeError as error:
            message = f"no accuracy of any variant: {error}"
            self.findings.append(Finding(ACCURACY_MISSING, message))
            return {}
        assert isinstance(result, AccuracyDone)
        self.findings += result.findings
        return result.accuracies

    def compared(self, accuracies: Mapping[str, Accuracy]) -> Comparison:
        """The comparison of the complete rounds."""
        self._windows = {
            path: self._windows.get(path) or analyze(load(path)).report
            for path in self.traces.values()
        }
        windows = {name: self._windows[path] for name, path in self.traces.items()}
        runs = [
            msgspec.structs.replace(report, accuracy=accuracies.get(report.variant))
            for report in self.runs
        ]
        return compare_runs(runs, windows, self.findings)
