"""The first lines about a trace, the same in every output: its step and limit, the bound with its
reasons, what to do next, and what is set apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from decodescope.analyzer.schema.answer import Answer, HostFrame
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.text.formatting import (
    count,
    counted,
    duration,
    rate,
    shorten,
    significant,
)
from decodescope.analyzer.vocabulary.words import bound_words, counted_steps, step_words

REFUSED = "model_not_used"
MODEL_FINDINGS = (REFUSED, "model_guessed", "model_candidates")
_MOST_KINDS, _MOST_FRAMES = 3, 2
_FRAME_CELLS = 160


@dataclass(frozen=True, slots=True)
class AnswerLines:
    """`headline` is the step, its time and its limit, `refused` why a model is not used, `reasons`
    the bound with the figure that decides, then the other figures, `host` where the host was while
    the devices waited for it, if that decides. `apart` is what is in none of these figures. Both
    are "" for nothing."""

    headline: str
    refused: tuple[str, ...]
    reasons: tuple[str, ...]
    host: str
    next: tuple[str, ...]
    apart: str


def answer_lines(report: Report, step: int | None = None) -> AnswerLines:
    """The lines about a trace, or about a chosen `step` that the report's figures are of."""
    answer, cost = report.answer, report.step_cost
    parallel = 1 if cost is None else cost.tensor_parallel
    if step is None:
        return lines_of(answer, report.health.findings, report.step_kinds, parallel)
    whole = f"{duration(answer.whole_ns)} in all"
    headline = [step_words(report, step), whole, *_limit_and_source(answer, parallel)]
    return replace(lines_of(answer), headline=" · ".join(headline))


def lines_of(
    answer: Answer,
    findings: Sequence[Finding] = (),
    step_kinds: Sequence[StepKindReport] = (),
    tensor_parallel: int = 1,
) -> AnswerLines:
    """The lines of an answer, with the findings, the kinds of steps and the degree of tensor
    parallelism of its trace."""
    return AnswerLines(
        " · ".join(_headline(answer, tensor_parallel)),
        tuple(finding.message for finding in findings if finding.code == REFUSED),
        tuple(_reasons(answer)),
        _host_words(answer.host) if answer.bound == "host" else "",
        answer.next,
        ", ".join(_apart(answer, step_kinds)),
    )


def _host_words(host: Sequence[HostFrame]) -> str:
    places = [
        f"{shorten(frame_words(row), _FRAME_CELLS)} ({duration(row.ns)})"
        for row in host[:_MOST_FRAMES]
    ]
    return f"the host was in {', '.join(places)}" if places else ""


def frame_words(host: HostFrame) -> str:
    """The Python frame, else the operator and call, that the host was in."""
    recorded = host.frame or " · ".join(filter(None, (host.operator, host.call)))
    return recorded or "code without an event"


def _reasons(answer: Answer) -> Iterator[str]:
    for place, reason in enumerate(answer.because):
        decides = place == 0 and answer.bound != "unknown"
        yield f"{bound_words(answer.bound)}; {reason}" if decides else reason


def _headline(answer: Answer, tensor_parallel: int) -> Iterator[str]:
    if answer.step_ns is not None:
        if answer.kind != "unknown":
            yield answer.kind
        yield counted_steps(answer.steps)
        yield f"{duration(answer.step_ns)} a step" + " on the host" * (not answer.whole_ns)
    elif answer.whole_ns:
        yield "no steps"
        yield f"{duration(answer.whole_ns)} in all"
    if not answer.whole_ns:
        yield "no timed GPU ops"
        return
    if answer.unprofiled_step_ns is not None:
        yield f"unprofiled {duration(answer.unprofiled_step_ns)}"
    if answer.tokens_per_s is not None and answer.kind != "prefill":
        yield f"{rate(answer.tokens_per_s)} tokens/s"
    yield from _limit_and_source(answer, tensor_parallel)


def limit_words(answer: Answer) -> str:
    """The limit of the step, marked where it is a lower bound."""
    if answer.limit_ns is None:
        return "limit not known"
    at_least = "≥ " if answer.limit_is_lower_bound else ""
    return f"limit {at_least}{duration(answer.limit_ns)}"


def _limit_and_source(answer: Answer, tensor_parallel: int) -> Iterator[str]:
    if answer.limit_ns is None:
        yield limit_words(answer)
        return
    known_by = []
    if answer.model is None:
        known_by.append("shapes in the trace")
    elif answer.model_source != "capture":
        # The title of a capture names its model.
        known_by.append(answer.model + "?" * (answer.model_source == "guessed"))
    if tensor_parallel > 1:
        known_by.append(f"TP {tensor_parallel}")
    at_most = "at most " if answer.limit_is_lower_bound else ""
    yield limit_words(answer) + (f" ({', '.join(known_by)})" if known_by else "")
    judged_ns = sum(part.ns for part in answer.parts if part.group != "profiler")
    if answer.limit_ns and judged_ns:
        yield f"{at_most}x{significant(judged_ns / answer.limit_ns)} over"


def _apart(answer: Answer, step_kinds: Sequence[StepKindReport]) -> Iterator[str]:
    """The steps of other kinds and sorts, and the interruptions."""
    of_answer = (answer.kind, answer.steps, answer.step_ns)
    rows = list(step_kinds)
    # Of rows that are alike in these, the first is that of the main steps.
    places = [(row.kind, row.steps, row.median_ns) for row in rows]
    main = rows.pop(places.index(of_answer)) if of_answer in places else None
    if answer.step_ns is not None:
        for row in rows[:_MOST_KINDS]:
            unlike = _unlike(row, main) if main and row.kind == main.kind else ""
            yield f"{counted_steps(row.steps, row.kind)}{unlike} ({duration(row.median_ns)})"
        if len(rows) > _MOST_KINDS:
            yield f"{len(rows) - _MOST_KINDS} more kinds"
    if answer.interruptions_ns:
        yield f"{duration(answer.interruptions_ns)} of interruptions"


def _unlike(row: StepKindReport, main: StepKindReport) -> str:
    """The difference of steps from the main ones of their kind."""
    if row.batch != main.batch:
        return f" of batch {count(row.batch)}" if row.batch else ""
    ops = row.gpu_ops // row.steps
    return (
        f" of {counted(ops, 'op')}" if ops != main.gpu_ops // main.steps else " of another process"
    )
