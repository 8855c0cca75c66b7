"""Variants of a whole model as entrants of a race: every variant is scored against the loaded
weights in fp32, then come the rounds of `compare`, each run in a process of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from benchmarks.claims.claim import Setup
from benchmarks.claims.report import EntrantFigures, Race
from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonEvent,
    ComparisonProgress,
    RunMeasured,
)
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.kernels.host.packing import PACKED_FORMATS
from decodescope.variants.comparing.command import CompareRequest, RunJobs, compare_variants
from decodescope.variants.comparing.job_process import (
    ACCURACY_MISSING,
    AccuracyDone,
    AccuracyJob,
    Job,
    Result,
)
from decodescope.variants.registry import find_variant
from decodescope.variants.spec import NARROW_WEIGHTS, WeightFormat
from decodescope.variants.tuning.report import RoundSpread

BASE = "eager"
# A claim has its own spread over rounds, the error of each variant's logits or why there is none,
# and no figure of a profiled step's gaps.
_SHOWN_ELSEWHERE = frozenset(
    {"few_rounds", ACCURACY_MISSING, "different_tokens", "distorted_window"}
)
# How often an order of sums that differs from eager's may multiply eager's own rounding error.
_OTHER_ORDER = 2.0
# Logits that are all zero have this relative error: more than it is no rounding.
_NO_LOGITS = 1.0
# Significant binary digits of a stored number. INT8 has a scale for each row, whose largest weight
# is about four times the typical one: of 7 digits, 5 are left for that one.
_DIGITS = {"fp32": 24, "fp16": 11, "bf16": 8, "int8": 5, "fp8_e4m3": 4, "fp8_e5m2": 3}
_DIGITS |= dict.fromkeys(PACKED_FORMATS, 2)
# The narrow formats in which peers store weights; the others keep those of the run.
PEER_FORMATS: dict[str, WeightFormat] = {"torchao-fp8": "fp8_e4m3", "torchao-int8": "int8"}


@dataclass(frozen=True, slots=True)
class Decoding:
    """What is decoded by which variants, greedily, batch 1, in so many rounds.

    A peer that fails is left out with its reason; any other variant's failure is the claim's.
    """

    model: str
    variants: tuple[str, ...]
    rounds: int
    peers: tuple[str, ...] = ()
    dtype: str = "bf16"
    context: int = 128
    tokens: int = 128

    @property
    def config(self) -> WorkerConfig:
        """The workload, for any of the variants."""
        return WorkerConfig(
            variant="",
            batch=1,
            tokens=self.tokens,
            model=self.model,
            context=self.context,
            dtype=self.dtype,
            device="cuda",
        )


@dataclass(frozen=True, slots=True)
class Decoded:
    """The race of the variants, what the comparison found about all of them, and where it ran."""

    race: Race
    notes: tuple[str, ...]
    gpu_name: str


def decode_race(setup: Setup, what: Decoding) -> Decoded:
    """Score the variants, and measure them in turn, round by round.

    `eager` must be one of them: its error is the measure of the others' (`tolerance_of`). A variant
    beyond its tolerance, or without accuracy, has an error and no times. Scoring comes first: it
    also compiles what the runs then find in the compiler's cache.

    Raises:
        DecodescopeError: a variant that is no peer failed, or the process that scores all.
        KeyboardInterrupt: whenever it is interrupted.
    """
    scored = _scored(setup, what)
    failed: dict[str, str] = {}
    comparison = None
    while comparison is None:
        # Peers run first, so that one that fails costs no other run.
        running = tuple(name for name in (*what.peers, *what.variants) if name not in failed)
        comparison = _compared(setup, what, running, scored, failed)
    codes = {one.code for one in comparison.comparison.findings}
    if "interrupted" in codes:
        raise KeyboardInterrupt
    size = f"{what.model}, {what.dtype}, batch 1, {what.context} tokens of context"
    entrants = [
        _left_out(name, failed[name]) if name in failed else _figures(setup, what, comparison, name)
        for name in (*what.variants, *what.peers)
    ]
    notes = tuple(
        one.message for one in comparison.comparison.findings if one.code not in _SHOWN_ELSEWHERE
    )
    race = Race(size, tuple(entrants), "steps")
    return Decoded(race, notes, comparison.runs[0].device_name)


def tolerance_of(variant: str, dtype: str, eager_error: float) -> float:
    """The relative error of the logits that `variant` may have, given eager's own in `dtype`.

    In the same dtype it is twice eager's, for another order of sums. Weights of d fewer significant
    binary digits round by 2^d as much, so eager's x 2^d. Never over 1, the error of zeros.
    """
    spec = find_variant(variant).spec
    word = PEER_FORMATS.get(variant) if spec is None else spec.weight_format
    narrow = None if word is None else NARROW_WEIGHTS.get(word)
    lost = 0 if narrow is None else _DIGITS[dtype] - _DIGITS[narrow.elements]
    return min(_NO_LOGITS, eager_error * max(_OTHER_ORDER, 2.0**lost))


def _scored(setup: Setup, what: Decoding) -> AccuracyDone:
    """The accuracy of all. Peers come last: they leave settings of inductor behind."""
    names = tuple(find_variant(name).name for name in (*what.variants, *what.peers))
    job = AccuracyJob(replace(what.config, variant=names[0]), names, None)
    done = setup.run(job, lambda stage: setup.say(f"accuracy: {stage}"))
    assert isinstance(done, AccuracyDone)
    return done


def _compared(
    setup: Setup,
    what: Decoding,
    variants: tuple[str, ...],
    scored: AccuracyDone,
    failed: dict[str, str],
) -> Comparison | None:
    """The comparison; None if a peer failed, which is then in `failed`."""
    runs = _Runs(setup.run, scored)

    def tell(event: ComparisonEvent) -> None:
        if isinstance(event, RunMeasured):
            setup.racing.between_rounds()
        elif isinstance(event, ComparisonProgress):
            setup.say(event.describe())

    try:
        return compare_variants(CompareRequest(what.config, variants, what.rounds), tell, runs)
    except DecodescopeError as error:
        if runs.running not in what.peers:
            raise
        failed[runs.running] = str(error)
        return None


class _Runs:
    """Does the runs of a comparison, and has their accuracy already; `running` is the variant that
    ran last."""

    def __init__(self, run: RunJobs, scored: AccuracyDone) -> None:
        self.running = ""
        self._run = run
        self._scored = scored

    def __call__(self, job: Job, say: Callable[[str], None]) -> Result:
        if isinstance(job, AccuracyJob):
            return self._scored
        self.running = job.config.variant
        return self._run(job, say)


def _left_out(name: str, why: str) -> EntrantFigures:
    return EntrantFigures(name, find_variant(name).summary, False, error=f"not available: {why}")


def _figures(setup: Setup, what: Decoding, comparison: Comparison, name: str) -> EntrantFigures:
    variant = find_variant(name)
    runs = [run for run in comparison.runs if run.variant == variant.name]
    figures = EntrantFigures(name, variant.summary, variant.spec is not None)
    accuracy = runs[0].accuracy
    eager = next(run.accuracy for run in comparison.runs if run.variant == BASE)
    if accuracy is None or eager is None:
        why = [
            one.message for one in comparison.comparison.findings if one.code == ACCURACY_MISSING
        ]
        return replace(figures, error=f"not scored: {'; '.join(why) or 'no accuracy'}")
    tolerance = tolerance_of(name, what.dtype, eager.logit_rel_error)
    scored = replace(
        figures,
        relative_error=accuracy.logit_rel_error,
        tolerance=tolerance,
        kl=accuracy.kl,
        perplexity_ratio=accuracy.perplexity_ratio,
        kl_interval=accuracy.kl_interval,
        perplexity_ratio_interval=accuracy.perplexity_ratio_interval,
        bytes_moved=runs[0].bytes_per_step,
    )
    if accuracy.logit_rel_error > tolerance:
        found = f"relative error {accuracy.logit_rel_error:.2g} against fp32"
        return replace(scored, error=f"{found} (allowed: {tolerance:.2g}): not timed")
    return _timed(scored, runs, setup.racing.peak_bytes_per_s)


def _timed(figures: EntrantFigures, runs: list[RunReport], peak: float | None) -> EntrantFigures:
    """With the times of the runs, one a round."""
    steps = RoundSpread.of([1e9 / run.tokens_per_s for run in runs if run.tokens_per_s])
    busy = [
        sum(part.ns for part in run.answer.parts if part.kernel is not None)
        for run in runs
        if run.answer.parts
    ]
    bound_ns = None if peak is None else runs[0].bytes_per_step / peak * 1e9
    return replace(
        figures,
        bound_ns=bound_ns,
        device_ns=RoundSpread.of(busy) if len(busy) == len(runs) else None,
        launched_ns=steps,
        share_of_bound=None if bound_ns is None else bound_ns / steps.median,
        launches=runs[-1].launch_calls_per_step,
    )
