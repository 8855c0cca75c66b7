"""`decodescope compare`: several variants of one model, measured in turn and set side by side."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.variants.comparing.jobs import (
    ACCURACY_MISSING,
    AccuracyDone,
    AccuracyJob,
    Job,
    Result,
)
from decodescope.variants.comparing.process import run_job
from decodescope.variants.comparing.rounds import Rounds
from decodescope.variants.measuring.request import read_request

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What to compare. `config` says what is decoded; its `variant` plays no part. `text` is
    scored for accuracy (None: `accuracy_text.scored_text` chooses). Traces are kept in the folder
    `keep`, made where it is missing, as <variant>-round<i>.json.gz; None keeps them until the
    outcome's context ends.
    """

    config: WorkerConfig
    variants: tuple[str, ...]
    repeats: int
    text: str | None = None
    keep: Path | None = None


@dataclass(frozen=True, slots=True)
class CompareOutcome:
    """The comparison, and by variant the trace of its last whole round."""

    comparison: Comparison
    traces: dict[str, Path]


@contextmanager
def compare_variants(
    request: CompareRequest, say: Say, run: Callable[[Job, Say], Result] = run_job
) -> Iterator[CompareOutcome]:
    """Measure the variants in turn, round by round (A B C A B C ...), each in a fresh process.

    A fresh process per run is what a user's run is: it pays for first visits, its variation from
    one process to the next is in the interval, its crash loses no other run, and its GPU memory is
    given back. A run that fails in the first round ends the comparison; later its round is left out
    for every variant, and a finding says so. Ctrl-C ends the comparison early: with at least one
    whole round, what is there is compared. Accuracy is scored at the end, in one more process.
    `run` does one job (`compare_child.run_job`).

    Raises:
        InputError: fewer than two variants, one named twice, `repeats` below 1, an empty text or a
            folder that cannot be written to; or as `read_request`.
        MissingRequirement: as `read_request`, or a variant failed in the first round.
        KeyboardInterrupt: before a whole round was measured.
    """
    variants = _checked_variants(request)
    with _work_folder(request.keep) as work:
        rounds = Rounds(request.config, variants, request.repeats, work, request.keep, run)
        rounds.measure(say)
        accuracies: dict[str, Accuracy] = {}
        if not rounds.interrupted:
            accuracies = _accuracies(request, variants, say, run, rounds.findings)
        say("comparing")
        windows = {name: analyze(load(path)).report for name, path in rounds.traces.items()}
        runs = [_with_accuracy(report, accuracies) for report in rounds.runs]
        yield CompareOutcome(compare_runs(runs, windows, rounds.findings), rounds.traces)


def _checked_variants(request: CompareRequest) -> tuple[str, ...]:
    """The variants by their own names; refuses what can be refused before the first run."""
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
                f"--variants {listed}: {name} is named twice; name each once (how much equal runs "
                "differ is in the interval: raise --repeats)"
            )
        names.append(name)
    return tuple(names)


@contextmanager
def _work_folder(keep: Path | None) -> Iterator[Path]:
    """Where children write, inside `keep` so that a finished trace is moved by renaming it."""
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            prefix="decodescope-" if keep is None else ".part-", dir=keep
        )
    except OSError as error:
        raise InputError(f"--out {keep}: cannot be written to ({error.strerror})") from error
    with folder as path:
        yield Path(path)


def _accuracies(
    request: CompareRequest,
    variants: tuple[str, ...],
    say: Say,
    run: Callable[[Job, Say], Result],
    findings: list[Finding],
) -> dict[str, Accuracy]:
    """Accuracy by variant; `findings` hears why one is missing."""
    config = msgspec.structs.replace(request.config, variant=variants[0])
    try:
        done = run(
            AccuracyJob(config, variants, request.text), lambda stage: say(f"accuracy: {stage}")
        )
    except KeyboardInterrupt:
        findings.append(
            Finding("interrupted", "interrupted while accuracy was scored: no variant has one")
        )
        return {}
    except DecodescopeError as error:
        findings.append(Finding(ACCURACY_MISSING, f"no accuracy of any variant: {error}"))
        return {}
    assert isinstance(done, AccuracyDone)
    findings += done.findings
    return done.accuracies


def _with_accuracy(report: RunReport, accuracies: dict[str, Accuracy]) -> RunReport:
    return msgspec.structs.replace(report, accuracy=accuracies.get(report.variant))
