"""Rows of the tables of variants, from the records of `compare-variants`."""

from collections import Counter
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.report.records import Record
from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.text.formatting import UNKNOWN, duration, number, percent, rate
from decodescope.analyzer.vocabulary.words import bound_words

# An interval wider than this part of the mean says less than the rounds themselves.
_WIDE = 0.3


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant of a comparison, as text. Step, MBU, launches and ops are medians of the rounds,
    the bound is the most frequent one, `idle` the share of the profiled window. `kl` has its 95 %
    interval where the record has one."""

    variant: str
    rate: str
    mean: str
    ratio: str
    step: str
    mbu: str
    launches: str
    ops: str
    bound: str
    idle: str
    kl: str


def dash(low: str, high: str) -> str:
    """A range."""
    return f"{low}\u2013{high}"


def with_interval(value: float, interval: Record | None, form: str) -> str:
    """A figure with its interval, if it was recorded."""
    text = form.format(value)
    if interval is None:
        return text
    return f"{text} ({dash(form.format(interval['low']), form.format(interval['high']))})"


def variant_rows(record: Record) -> list[VariantRow]:
    """Every variant of a comparison; ratios are to its first."""
    return [_row(record, rates) for rates in record["variants"]]


def variant(record: Record, name: str) -> VariantRow:
    """The row of one variant."""
    return next(row for row in variant_rows(record) if row.variant == name)


def limit_per_s(record: Record, name: str) -> float:
    """How many steps a second a variant could make: measured read peak ÷ bytes of a step."""
    run = _runs(record, name)[0]
    peak: float = run["bandwidth"]["measured_peak_bytes_per_s"]
    return peak / float(run["bytes_per_step"])


def bytes_per_step(record: Record, name: str) -> float:
    """The bytes that a step of a variant reads."""
    return float(_runs(record, name)[0]["bytes_per_step"])


def peak_bytes_per_s(record: Record) -> float:
    """The read peak that the comparison's runs measured."""
    (peak,) = {run["bandwidth"]["measured_peak_bytes_per_s"] for run in record["runs"]}
    return float(peak)


def idle_cells(record: Record, name: str) -> list[str]:
    """One profiled window in per cent of its length: idle by class, then the part of busy time in
    which ops overlap; and how many times as long a profiled step takes."""
    window = record["windows"][name]
    cells = [_part(window["idle_ns_by_class"][one], window["window_ns"]) for one in GAP_CLASSES]
    cells.append(_part(window["overlap_ns"], window["busy_ns"]))
    attributed = window["attribution"]
    cells.append(_part(attributed["exact"], sum(attributed.values())))
    return [*cells, f"{_profiler_ratio(window):.2f}"]


def changes(record: Record, name: str) -> list[str]:
    """What a variant changes against the first one, per step: time in µs, launch calls, GPU ops,
    idle time in µs."""
    base = record["variants"][0]["variant"]
    if name == base:
        return [UNKNOWN] * 4
    before, after = _step_figures(record, base), _step_figures(record, name)
    return [
        _signed(after[place] - before[place], 1e3 if times else 1.0)
        for place, times in enumerate((True, False, False, True))
    ]


def _step_figures(record: Record, name: str) -> tuple[float, float, float, float]:
    """Per step: the unprofiled time in ns, launch calls, GPU ops, and the idle time in ns."""
    runs = _runs(record, name)
    return (
        mean(run["step_ns"]["mean"] for run in runs),
        median(run["launch_calls_per_step"] for run in runs),
        median(run["gpu_ops_per_step"] for run in runs),
        _idle_ns_per_step(record, name),
    )


def _idle_ns_per_step(record: Record, name: str) -> float:
    """The idle time of a variant's profiled window, divided by the steps in it."""
    window = record["windows"][name]
    steps = window["launches"]["calls"] / _runs(record, name)[-1]["launch_calls_per_step"]
    return float(window["idle_ns"]) / float(steps)


def _row(record: Record, rates: Record) -> VariantRow:
    name = rates["variant"]
    runs = _runs(record, name)
    window = record["windows"][name]
    bounds = Counter(map(_bound, runs))
    return VariantRow(
        variant=name,
        rate=f"{_mean(rates)} ({_noise(rates)})",
        mean=_mean(rates),
        ratio=_ratio(record, name),
        step=duration(median(run["step_ns"]["p50"] for run in runs)),
        mbu=f"{percent(median(run['bandwidth']['mbu'] for run in runs))} %",
        launches=number(median(run["launch_calls_per_step"] for run in runs)),
        ops=number(median(run["gpu_ops_per_step"] for run in runs)),
        bound=bound_words(bounds.most_common(1)[0][0]),
        idle=f"{percent(window['idle_ns'] / window['window_ns'])} %",
        kl=_kl(rates["accuracy"]),
    )


def _kl(accuracy: Record | None) -> str:
    """Unknown of a comparison that was ended before the variants were scored."""
    if accuracy is None:
        return UNKNOWN
    return with_interval(accuracy["kl"], accuracy.get("kl_interval"), "{:.2g}")


def _bound(run: Record) -> Bound:
    """Records of schema version 2 have the bound in `verdict`, where `launch` is `host`."""
    bound = run["answer"]["bound"] if "answer" in run else run["verdict"]["bound"]
    return "host" if bound == "launch" else bound


def _profiler_ratio(window: Record) -> float:
    """Profiled step time ÷ unprofiled one; records of schema version 2 have it in `observer`."""
    if "observer" in window:
        return float(window["observer"]["ratio"])
    return float(window["answer"]["step_ns"] / window["answer"]["unprofiled_step_ns"])


def _runs(record: Record, name: str) -> list[Record]:
    return [run for run in record["runs"] if run["variant"] == name]


def _mean(rates: Record) -> str:
    low, high = _range(rates)
    return _with_decimals(rates["mean"], high - low)


def _range(rates: Record) -> tuple[float, float]:
    """The 95 % interval, or the range of two rounds, which have none."""
    interval = rates["interval"]
    if interval is None:
        return min(rates["tokens_per_s"]), max(rates["tokens_per_s"])
    return interval["low"], interval["high"]


def _noise(rates: Record) -> str:
    """The 95 % interval, or the rounds where it is wide or there is none."""
    low, high = _range(rates)
    if rates["interval"] is None or high - low > _WIDE * rates["mean"]:
        return "rounds: " + ", ".join(map(rate, rates["tokens_per_s"]))
    return dash(*(_with_decimals(end, high - low) for end in (low, high)))


def _with_decimals(value: float, width: float) -> str:
    """Three digits at least, and a decimal where the interval is narrow enough for one."""
    return f"{value:,.1f}" if width < 1.5 else rate(value)


def _ratio(record: Record, name: str) -> str:
    base = record["variants"][0]["variant"]
    if name == base:
        return "1"
    speed = next(p["speed"] for p in record["pairs"] if (p["base"], p["other"]) == (base, name))
    return with_interval(speed["value"], speed["interval"], "{:.3f}")


def _signed(change: float, unit: float) -> str:
    text = number(abs(change) / unit)
    return f"{'-' if change < 0 else '+'}{text}" if change else text


def _part(part: float, whole: float) -> str:
    return percent(part / whole) if part else UNKNOWN
