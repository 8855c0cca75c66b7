"""`decodescope compare`: measures several variants of one model in turn, and compares them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from decodescope.analyzer.comparing.regression_gate import Baseline, require_same_workload
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.io.output_paths import make_folder
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.variants.comparing.job_process import run_job
from decodescope.variants.comparing.jobs import (
    ACCURACY_MISSING,
    AccuracyDone,
    AccuracyJob,
    Job,
    Result,
    RunDone,
    RunJob,
)
from decodescope.variants.machine.environment import choose_device
from decodescope.variants.measuring.request import planned_run, read_request
from decodescope.variants.registry import is_interpreted

Tell = Callable[[ComparisonEvent], None]
RunJobs = Callable[[Job, Callable[[str], None]], Result]


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The variants to compare. `config` says what is decoded; its `variant` is ignored.

    `text` is scored for accuracy (None: `accuracy_text.scored_text` chooses one). Traces are kept
    in the folder `keep`, created if missing, as <variant>-round<i>.json.gz; with None they are
    deleted when the outcome's context ends. The workload of a `baseline` must be the same. With
    `each_round`, the runs so far are compared after each complete round too.
    """

    config: WorkerConfig
    variants: tuple[str, ...]
    repeats: int
    text: str | None = None
    keep: Path | None = None
    baseline: Baseline | None = None
    each_round: bool = False


@dataclass(frozen=True, slots=True)
class CompareOutcome:
    """The comparison, and for each variant the trace of the last complete round."""

    comparison: Comparison
    traces: dict[str, Path]


@contextmanager
def compare_variants(
    request: CompareRequest, tell: Tell, run: RunJobs = run_job
) -> Iterator[CompareOutcome]:
    """Measure the variants in turn, round by round (A B C A B C ...), each in a new process.

    A new process for every run matches what a user's run costs: it includes one-time costs, the
    interval covers the variation between processes, a crash loses no other run, and the GPU memory
    is freed. A run that fails in the first round ends the comparison; in a later round that round
    is left out for every variant, and a finding says so. Ctrl-C ends the comparison early; the
    complete rounds, if any, are compared. Accuracy is scored at the end, in one more process.
    `tell` is called with what happens, `run` does one job.

    Raises:
        InputError: fewer than two variants, one named twice, `repeats` below 1, an empty text, a
            baseline of another workload, or with a variant that Triton's interpreter runs, or
            a folder that cannot be written to; or as `read_request`.
        MissingRequirement: as `read_request`, or a variant failed in the first round.
        KeyboardInterrupt: before a complete round was measured.
    """
    request = replace(request, variants=_checked_variants(request))
    interpreted = _interpreted(request)
    if request.baseline is not None:
        if interpreted:
            raise InputError(
                f"--fail-on-regression: Triton's interpreter would run {', '.join(interpreted)}, "
                "which says nothing of speed; compare on a GPU, or leave the gate out"
            )
        config = msgspec.structs.replace(request.config, variant=request.variants[0])
        require_same_workload(request.baseline, planned_run(config))
    if request.keep is not None:
        make_folder(request.keep, "--out")
    with WorkFolder() as work:
        rounds = _Rounds(request, Path(work), run)
        rounds.measure(tell)
        accuracies: dict[str, Accuracy] = {}
        if not rounds.interrupted:
            accuracies = _accuracies(request, tell, run, rounds.findings)
        tell(ComparisonProgress(request.repeats))
        yield CompareOutcome(rounds.compared(accuracies), rounds.traces)


def _interpreted(request: CompareRequest) -> tuple[str, ...]:
    """The variants that Triton's interpreter runs; they are neither timed nor profiled."""
    device = choose_device(request.config.device)
    return tuple(name for name in request.variants if is_interpreted(name, device))


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
        config = msgspec.structs.replace(request.config, variant=variant)
        name = read_request(config).variant
        if name in names:
            raise InputError(
                f"--variants {listed}: {name} is named twice; name each once (the interval covers "
                "how much equal runs differ; raise --repeats to narrow it)"
            )
        names.append(name)
    return tuple(names)


def _accuracies(
    request: CompareRequest,
    tell: Tell,
    run: RunJobs,
    findings: list[Finding],
) -> dict[str, Accuracy]:
    """Accuracy by variant; a missing one adds to `findings`."""
    config = msgspec.structs.replace(request.config, variant=request.variants[0])
    try:
        result = run(
            AccuracyJob(config, request.variants, request.text),
            lambda stage: tell(ComparisonProgress(request.repeats, stage=stage)),
        )
    except KeyboardInterrupt:
        findings.append(
            Finding("interrupted", "interrupted while accuracy was scored: none is reported")
        )
        return {}
    except DecodescopeError as error:
        findings.append(Finding(ACCURACY_MISSING, f"no accuracy of any variant: {error}"))
        return {}
    assert isinstance(result, AccuracyDone)
    findings += result.findings
    return result.accuracies


class _Rounds:
    """Runs the rounds of a request; `run` does one job.

    After `measure`, `runs` are those of the complete rounds in the order they ran, `traces` those
    of the last complete round by variant, and `findings` the problems. Traces are written to
    `work`, and copied to the request's folder when their round is complete.
    """

    def __init__(self, request: CompareRequest, work: Path, run: RunJobs) -> None:
        self.runs: list[RunReport] = []
        self.traces: dict[str, Path] = {}
        self.findings: list[Finding] = []
        self.interrupted = False
        self._request = request
        self._work = work
        self._run = run
        self._interpreted = _interpreted(request)
        self._last_rate: dict[str, float] = {}
        self._windows: dict[Path, Report] = {}

    def measure(self, tell: Tell) -> None:
        """Run the rounds.

        Raises:
            DecodescopeError: a variant failed before any round was complete.
            KeyboardInterrupt: before any round was complete.
        """
        repeats = self._request.repeats
        for round in range(repeats):
            try:
                self._measure_round(round, tell)
                if self._request.each_round:
                    tell(RoundCompared(self.compared({})))
            except KeyboardInterrupt:
                if not self.runs:
                    raise
                whole = len(self.runs) // len(self._request.variants)
                message = (
                    f"interrupted in round {round + 1} of {repeats}: comparing the runs "
                    f"of {whole} complete rounds, without accuracy"
                )
                self.findings.append(Finding("interrupted", message))
                self.interrupted = True
                return

    def _measure_round(self, round: int, tell: Tell) -> None:
        """Run every variant once; a round that fails after a complete one is a finding."""
        try:
            self._keep_round(
                round, [self._one_run(name, round, tell) for name in self._request.variants]
            )
        except DecodescopeError as error:
            if not self.runs:
                raise
            message = f"round {round + 1} of {self._request.repeats} is left out: {error}"
            self.findings.append(Finding("round_left_out", message))

    def compared(self, accuracies: Mapping[str, Accuracy]) -> Comparison:
        """The comparison of the complete rounds, with the accuracy of each variant."""
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

    def _one_run(self, variant: str, round: int, tell: Tell) -> RunReport:
        doing = ComparisonProgress(
            self._request.repeats, round, variant, last_tokens_per_s=self._last_rate.get(variant)
        )
        tell(doing)
        config = msgspec.structs.replace(self._request.config, variant=variant)
        profiled = variant not in self._interpreted
        job = RunJob(config, str(self._trace_path(variant, round)) if profiled else None)
        try:
            result = self._run(job, lambda stage: tell(msgspec.structs.replace(doing, stage=stage)))
        except DecodescopeError as error:
            raise type(error)(f"variant {variant} failed: {error}") from error
        assert isinstance(result, RunDone)
        if self._request.baseline is not None:
            # The number of tokens of a prompt's text is known after the run.
            require_same_workload(self._request.baseline, result.report)
        if result.report.tokens_per_s is not None:
            self._last_rate[variant] = result.report.tokens_per_s
        report = msgspec.structs.replace(result.report, round=round)
        tell(RunMeasured(report))
        return report

    def _keep_round(self, round: int, reports: list[RunReport]) -> None:
        keep = self._request.keep
        traces = {
            name: self._trace_path(name, round)
            for name in self._request.variants
            if name not in self._interpreted
        }
        if keep is not None:
            for path in traces.values():
                write_atomically(keep / path.name, path.read_bytes())
            traces = {name: keep / path.name for name, path in traces.items()}
        self.traces = traces
        self.runs += reports

    def _trace_path(self, variant: str, round: int) -> Path:
        """A path unique to the variant, whose own name may contain a slash."""
        return self._work / f"{quote(variant, safe='+')}-round{round}.json.gz"
