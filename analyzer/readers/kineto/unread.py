"""What a Chrome trace holds that no figure counts, and what its profiler logged."""

from collections import Counter
from collections.abc import Iterator, Mapping

from decodescope.analyzer.readers.kineto.columns import EventColumns

RELEVANT_SHARE = 0.05
_LISTED = 4
_NAME_LENGTH, _LOG_LENGTH = 60, 200
# The range profiler of CUPTI replays kernels to count events; Kineto writes the window divided by
# the number of kernels as the duration of each (CuptiRangeProfiler.cpp).
_COUNTED = "cuda_profiler_range"
_ACCELERATORS = {"mtia_": "MTIA", "hpu_": "Gaudi", "glow_": "Glow"}


def unread_findings(
    columns: EventColumns, metadata: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """(code, message) of each finding: events that never end or begin, kernels that were counted
    and not timed, what is not understood, and errors that the profiler logged.

    What is not understood are categories, where they are `RELEVANT_SHARE` of the timed events or no
    GPU op is understood; phases, if nothing is timed.
    """
    pairs, unknown = columns.pairs, Counter(columns.unknown)
    if not columns.timed:
        others = {phase: n for phase, n in columns.phases.items() if phase not in ("", "M")}
        unknown = Counter({f"phase {phase}": number for phase, number in others.items()})
    if pairs.unclosed or pairs.unopened:
        yield (
            "open_ended_events",
            f"{pairs.unclosed:,} events begin and never end, {pairs.unopened:,} ends have no "
            "begin; they were left out",
        )
    if counted := unknown.pop(_COUNTED, 0):
        yield (
            "counted_kernels",
            f"{counted:,} kernels were counted by hardware counters, not timed: their durations in "
            f"the file ({_COUNTED}) are made up and not read; record without profiler_metrics to "
            "time them",
        )
    has_ops = any(len(part) for part in columns.gpu)
    if unknown and (not has_ops or unknown.total() >= RELEVANT_SHARE * columns.timed):
        yield "not_understood", f"not understood and in no figure: {_listed(unknown)}"
    errors = metadata.get("ERROR")
    if isinstance(errors, list) and errors:
        said = _cut(str(errors[0]), _LOG_LENGTH)
        yield (
            "profiler_errors",
            f"the profiler logged {len(errors)} error{'s' * (len(errors) > 1)}: {said}",
        )


def _cut(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[:length]}…"


def _listed(unknown: Counter[str]) -> str:
    """The largest categories with their counts, and whose they are."""
    largest = unknown.most_common()
    parts = [
        f"{number:,} events of {_cut(category, _NAME_LENGTH)}"
        for category, number in largest[:_LISTED]
    ]
    if more := largest[_LISTED:]:
        rest = sum(number for _, number in more)
        parts.append(f"{rest:,} of {len(more)} more categories")
    owners = {name for prefix, name in _ACCELERATORS.items()
              if any(category.startswith(prefix) for category in unknown)}  # fmt: skip
    whose = f" (of the accelerator {' and '.join(sorted(owners))})" if owners else ""
    return f"{', '.join(parts)}{whose}; the devices read are those of CUDA, ROCm and XPU"
