"""The questions that a comparison leaves open."""

from collections.abc import Iterator

from decodescope.analyzer.comparing.diff import INCONCLUSIVE
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.vocabulary.words import speed_text, step_ratio_text

_DECIDED = ("faster", "slower")


def undecided(result: Diff | Comparison) -> str:
    """Every ratio that shows neither side faster, and why. Equal step times leave nothing open."""
    reasons = _of_diff(result) if isinstance(result, Diff) else _of_comparison(result)
    open_questions = "; ".join(reasons)
    return open_questions and f"{INCONCLUSIVE}: {open_questions}"


def _of_diff(diff: Diff) -> Iterator[str]:
    answer = diff.answer
    for finding in diff.findings:
        if finding.code == INCONCLUSIVE:
            yield finding.message.removeprefix(f"{INCONCLUSIVE}: ")
    if answer.ratio is None or answer.differences:
        yield answer.reason or step_ratio_text(answer)


def _of_comparison(comparison: Comparison) -> Iterator[str]:
    result = comparison.comparison
    for pair in result.pairs:
        sides = f"{pair.other} against {pair.base}"
        if pair.speed is None:
            yield f"{sides}: no tokens/s on both sides"
        elif pair.speed.verdict not in _DECIDED:
            yield f"{sides}: {speed_text(pair.speed)}"
