"""What changed from one variant (or trace) to another, as rows of text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.pair_changes import ALL_IDLE
from decodescope.analyzer.formatting import UNKNOWN, duration, interval_text, number, ratio_text
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.views.words import change_text, verdict_words

_RANGE_ROWS = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One table: the first column is text, the others numbers, but for those in `words`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PairLabels:
    """How the two sides and their figures are named."""

    base: str
    other: str
    step: str
    ops: str


def speed_section(pairs: Sequence[tuple[Pair, PairLabels]]) -> Section:
    """The ratio of tokens/s of each pair, and its verdict."""
    rows, reasons = [], []
    for pair, labels in pairs:
        name = f"{labels.other} ÷ {labels.base}"
        if pair.speed is None:
            rows.append((name, UNKNOWN, UNKNOWN, "unknown"))
            continue
        interval = interval_text(pair.speed.interval, ratio_text)
        verdict = verdict_words(pair.speed.verdict)
        rows.append((name, ratio_text(pair.speed.value), interval, verdict))
        if pair.speed.reason:
            reasons.append(pair.speed.reason)
    return Section(
        "Ratios of tokens/s",
        ("other ÷ base", "ratio", "95 % interval", "verdict"),
        tuple(rows),
        note="; ".join(dict.fromkeys(reasons)),
        words=("verdict",),
    )


def change_section(pair: Pair, labels: PairLabels, per: str) -> Section:
    """The figures of both sides; those that neither has are left out."""
    idle = [
        (f"idle: {name}", change, duration)
        for name, change in pair.idle_ns.items()
        if name != ALL_IDLE and (change.base or change.other)
    ]
    figures = [
        (labels.step, pair.step_ns, duration),
        ("launch calls", pair.launch_calls, number),
        (labels.ops, pair.gpu_ops, number),
        ("busy", pair.busy_ns, duration),
        *idle,
        ("idle, all", pair.idle_ns[ALL_IDLE], duration),
    ]
    return Section(
        f"What changed {per}: {labels.base} to {labels.other}",
        ("", labels.base, labels.other, "change"),
        tuple(
            (name, text(change.base), text(change.other), change_text(change))
            for name, change, text in figures
            if change.base is not None or change.other is not None
        ),
    )


def range_section(pair: Pair, labels: PairLabels) -> Section | None:
    """The ranges whose busy and idle time changed most, innermost ones only; None without any."""
    innermost = _innermost(pair.ranges)
    if not innermost:
        return None
    shown = sorted(innermost, key=_moved_ns, reverse=True)[:_RANGE_ROWS]
    prefix = _shared_prefix([row.path for row in shown])
    rest = len(innermost) - len(shown)
    notes = [f"all in {prefix[:-1]}"] if prefix else []
    notes += [f"{rest} more changed less"] if rest else []
    return Section(
        f"Ranges that changed most: {labels.base} to {labels.other}",
        ("range", "busy", "then", "change", "idle", "then"),
        tuple(
            (
                _range_name(row, prefix),
                *(duration(row.gpu_ns.base), duration(row.gpu_ns.other), change_text(row.gpu_ns)),
                *(duration(row.idle_ns.base), duration(row.idle_ns.other)),
            )
            for row in shown
        ),
        note="; ".join(notes),
    )


def _innermost(ranges: Iterable[RangeChange]) -> list[RangeChange]:
    rows = list(ranges)
    outer = {prefix for row in rows for prefix in _prefixes(row.path)}
    return [row for row in rows if row.path not in outer]


def _prefixes(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _moved_ns(row: RangeChange) -> float:
    return _distance(row.gpu_ns) + _distance(row.idle_ns)


def _distance(change: Change) -> float:
    return abs((change.other or 0.0) - (change.base or 0.0))


def _shared_prefix(paths: Sequence[str]) -> str:
    """The longest path that all lie below, with its "/"."""
    shared = set.intersection(*({f"{prefix}/" for prefix in _prefixes(path)} for path in paths))
    return max(shared, key=len, default="")


def _range_name(row: RangeChange, prefix: str) -> str:
    name = row.path.removeprefix(prefix)
    if not row.replaced:
        return name
    return f"{name} (was {', '.join(path.rpartition('/')[2] for path in row.replaced)})"
