"""The parts of the step that an answer is about: time, limit, and time over the limit."""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from decodescope.analyzer.names.fitted_names import WHOLE_CELLS, cut_start
from decodescope.analyzer.schema.answer import Answer, AnswerPart
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import DETAIL, Column, Mark, Table, quotient
from decodescope.analyzer.tables.kernels_table import short_names
from decodescope.analyzer.vocabulary.answer_words import frame_words
from decodescope.analyzer.vocabulary.words import ROLE_KNOWN_BY, part_words

_HOST_PART = "host_wait"


def answer_table(
    answer: Answer, most: int | None = None, kernels: Sequence[KernelReport] = ()
) -> Table[AnswerPart]:
    """The first `most` parts of an answer, the one furthest over its limit first. Without any
    limit, times and shares of the step. Short names are those of the table of all `kernels`."""
    known = answer.limit_ns is not None
    columns: tuple[Column[AnswerPart], ...] = (
        kinds.TEXT(
            "part", "over the limit" if known else "part", text=lambda part: part_words(part.part)
        ),
        kinds.DURATION("ns", "time", "ns"),
        kinds.DURATION("limit_ns", "limit", shown=known, priority=2),
        kinds.SIGNED_DURATION("over_ns", "over", shown=known, tone="strong"),
        kinds.PERCENT(
            "over_share",
            "of window" if answer.step_ns is None else "of step",
            lambda part: part.lost_ns / answer.whole_ns if answer.whole_ns else None,
            priority=3,
            bar=10 if known else 16,
        ),
        _where(answer, most, kernels),
        *_DETAILS,
    )
    return Table(
        "parts",
        columns,
        answer.parts[:most],
        total=len(answer.parts),
        key=attrgetter("part"),
        mark=lambda part: Mark("part", part.part),
        tone=lambda part: "dim" if part.group == "profiler" else "plain",
    )


_DETAILS: tuple[Column[AnswerPart], ...] = (
    kinds.PERCENT("share_of_limit", "of limit", quotient("limit_ns", "ns"), priority=DETAIL),
    kinds.GIGABYTES_PER_S(
        "bytes_per_s",
        "",
        lambda part: part.bytes * 1e9 / part.ns if part.bytes is not None and part.ns else None,
        priority=DETAIL + 1,
    ),
    kinds.COUNT("ops", "ops", lambda part: part.ops or None, priority=DETAIL + 2),
    kinds.TEXT(
        "confidence",
        "known by",
        lambda part: ROLE_KNOWN_BY.get(part.confidence),
        priority=DETAIL + 3,
        tone="dim",
    ),
)


def _where(answer: Answer, most: int | None, kernels: Sequence[KernelReport]) -> Column[AnswerPart]:
    """The kernel that takes most of a part; of waiting for the host, what the host did."""
    shown = (part.kernel for part in answer.parts[:most] if part.kernel is not None)
    names = short_names(kernels, shown)
    host: Mapping[str, str] = {}
    if answer.host:
        host = {_HOST_PART: frame_words(answer.host[0])}

    def fit(part: AnswerPart, cells: int) -> str:
        if part.kernel is not None:
            return names.of(part.kernel, cells)
        return cut_start(host.get(part.part, ""), cells)

    return kinds.RANGE(
        "kernel",
        "",
        lambda part: part.kernel or host.get(part.part),
        text=lambda part: fit(part, WHOLE_CELLS),
        fit=fit,
        least=16,
        priority=4,
        tone="dim",
    )
