"""What changed from one variant (or trace) to another, as tables of text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.pair_changes import ALL_IDLE
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    duration,
    interval_text,
    number,
    ratio_text,
)
from decodescope.analyzer.vocabulary.words import change_text, verdict_words

_RANGE_ROWS = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One table: the first column and those in `words` are text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: tuple[str, ...] = ()


def speed_section(pairs: Sequence[Pair]) -> Section:
    """The ratio of tokens/s of each pair, and its verdict."""
    rows, reasons = [], []
    for pair in pairs:
        name, speed = f"{pair.other} ÷ {pair.base}", pair.speed
        if speed is None:
            rows.append((name, UNKNOWN, UNKNOWN, verdict_words("unknown")))
            continue
        interval = interval_text(speed.interval, ratio_text)
        rows.append((name, ratio_text(speed.value), interval, verdict_words(speed.verdict)))
        if speed.reason:
            reasons.append(speed.reason)
    return Section(
        "Ratios of tokens/s",
        ("other ÷ base", "ratio", "95 % interval", "verdict"),
        tuple(rows),
        note="; ".join(dict.fromkeys(reasons)),
        words=("verdict",),
    )


def change_section(pair: Pair, step: str, ops: str, per: str) -> Section:
    """The figures of both sides; those that neither has are omitted. `step` and `ops` name the step
    time and the ops."""
    idle = [
        (f"idle: {name}", change, duration)
        for name, change in pair.idle_ns.items()
        if name != ALL_IDLE and (change.base or change.other)
    ]
    figures = [
        (step, pair.step_ns, duration),
        ("launch calls", pair.launch_calls, number),
        (ops, pair.gpu_ops, number),
        ("busy", pair.busy_ns, duration),
        *idle,
        ("idle, all", pair.idle_ns[ALL_IDLE], duration),
    ]
    return Section(
        f"What changed {per}: {pair.base} to {pair.other}",
        ("", pair.base, pair.other, "change"),
        tuple(
            (name, text(change.base), text(change.other), change_text(change))
            for name, change, text in figures
            if change.base is not None or change.other is not None
        ),
    )


def range_section(pair: Pair) -> Section:
    """The innermost ranges whose busy (if ops overlap: attributed) and idle time changed most."""
    figure = "attributed_ns" if pair.overlapping else "gpu_ns"
    outer = {prefix for row in pair.ranges for prefix in _prefixes(row.path)}
    innermost = [row for row in pair.ranges if row.path not in outer]
    moved = sorted(innermost, key=lambda row: -_moved_ns(row, figure))
    shown = [(row, getattr(row, figure)) for row in moved[:_RANGE_ROWS]]
    prefix = _shared_prefix([row.path for row, _ in shown])
    rest = len(innermost) - len(shown)
    notes = [f"all in {prefix[:-1]}"] if prefix else []
    notes += [f"{rest} more changed less"] if rest else []
    notes += ["attributed times, because ops overlap"] if pair.overlapping else []
    return Section(
        f"Ranges that changed most: {pair.base} to {pair.other}",
        ("range", "attributed" if pair.overlapping else "busy", "then", "change", "idle", "then"),
        tuple(
            (
                _range_name(row, prefix),
                *(duration(taken.base), duration(taken.other), change_text(taken)),
                *(duration(row.idle_ns.base), duration(row.idle_ns.other)),
            )
            for row, taken in shown
        ),
        note="; ".join(notes),
    )


def _prefixes(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _moved_ns(row: RangeChange, figure: str) -> float:
    return _distance(getattr(row, figure)) + _distance(row.idle_ns)


def _distance(change: Change) -> float:
    return abs((change.other or 0.0) - (change.base or 0.0))


def _shared_prefix(paths: Sequence[str]) -> str:
    """The longest path that contains all `paths`, with its "/"."""
    prefixes = [{f"{prefix}/" for prefix in _prefixes(path)} for path in paths]
    shared = set.intersection(*prefixes) if prefixes else set()
    return max(shared, key=len, default="")


def _range_name(row: RangeChange, prefix: str) -> str:
    name = row.path.removeprefix(prefix)
    if not row.replaced:
        return name
    return f"{name} (was {', '.join(path.rpartition('/')[2] for path in row.replaced)})"
