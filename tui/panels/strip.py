"""The strip of figures above every page: the most important ones fit on the narrowest screen."""

from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from decodescope.analyzer.reports.per_step import (
    communication_fraction,
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.reports.step_bandwidths import live_bandwidth
from decodescope.analyzer.text import formatting as fmt
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet

Tone = Literal["lead", "plain", "warn", "stale"]

STALE_AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: `before` and `after` are dim words around its text. The highest `priority` is
    dropped first."""

    before: str
    text: str
    after: str
    priority: int
    tone: Tone = "plain"

    @property
    def words(self) -> str:
        """The figure as text."""
        return " ".join(part for part in (self.before, self.text, self.after) if part)


class StripPanel(Panel[tuple[Figure, ...]]):
    """Figures that are not known are left out: a trace has no tokens/s."""

    NAME = "strip"
    FRAMES = ()
    AGES = True
    PART = "figures"

    def pick(self, view: View, moment: Moment) -> tuple[Figure, ...]:
        return (*_speed(view), *_window(view), *_meters(view), *_freshness(view, moment))

    def as_text(self, data: tuple[Figure, ...]) -> list[str]:
        return ["  ".join(figure.words for figure in data)]

    def draw(self, data: tuple[Figure, ...], width: int, height: int) -> Sheet:
        inks, row = self._brush.inks, Row().add(" ", self._brush.inks.text)
        tones = {"lead": inks.accent, "warn": inks.warn, "stale": inks.dim, "plain": inks.strong}
        kept = list(data)
        while kept and sum(cell_len(figure.words) + 3 for figure in kept) > width + 1:
            kept.remove(max(kept, key=lambda figure: figure.priority))
        for place, figure in enumerate(kept):
            if place:
                row.add("   ", inks.text)
            row.add(f"{figure.before} " if figure.before else "", inks.dim)
            row.add(figure.text, tones[figure.tone])
            row.add(f" {figure.after}" if figure.after else "", inks.dim)
        return Sheet([row])


def _speed(view: View) -> list[Figure]:
    stats = view.stats
    if stats is None:
        return []
    tone: Tone = "plain" if view.live_figures else "stale"
    lead: Tone = "lead" if view.live_figures else "stale"
    figures = [
        Figure("", fmt.rate(stats.tokens_per_s), "tok/s", 0, lead),
        Figure("p50", fmt.milliseconds(stats.step_p50_ns), "ms", 2, tone),
        Figure("p99", fmt.milliseconds(stats.step_p99_ns), "ms", 4, tone),
    ]
    live = live_bandwidth(stats, view.hello)
    if live is not None and live.used.mbu is not None:
        of = "of the datasheet's peak" if live.used.mbu_of == "datasheet" else ""
        figures.append(Figure("MBU now", f"{fmt.percent(live.used.mbu)} %", of, 5, tone))
    return figures


def _window(view: View) -> list[Figure]:
    if view.window is None:
        return []
    report, cpu = view.window.report, view.on_cpu
    tone: Tone = "plain" if view.live_figures or view.kind == "trace" else "stale"
    figures = []
    if not cpu and (calls := launch_calls_per_step(report)) is not None:
        launches = "launch" if calls == 1 else "launches"
        figures.append(Figure("", fmt.number(calls), launches, 1, tone))
    if (ops := gpu_ops_per_step(report)) is not None:
        figures.append(Figure("", fmt.number(ops), "operators" if cpu else "GPU ops", 6, tone))
    if (idle := idle_fraction(report)) is not None:
        figures.append(Figure("op idle" if cpu else "idle", f"{fmt.percent(idle)} %", "", 1, tone))
    if shared := communication_fraction(report):
        figures.append(Figure("comm", f"{fmt.percent(shared)} %", "", 3, tone))
    return figures


def _meters(view: View) -> list[Figure]:
    """The meters of the GPU; a reason to run slower comes first."""
    meters = view.meters
    if meters is None:
        return []
    figures = []
    if meters.throttle:
        figures.append(Figure("throttled:", ", ".join(meters.throttle), "", 2, "warn"))
    if meters.power_w is not None:
        figures.append(Figure("", f"{meters.power_w:.0f}", "W", 8))
    if meters.sm_clock_mhz is not None:
        figures.append(Figure("", f"{meters.sm_clock_mhz / 1e3:.2f}", "GHz", 9))
    if meters.temperature_c is not None:
        figures.append(Figure("", f"{meters.temperature_c}", "\u00b0C", 10))
    if meters.memory_used_bytes is not None:
        of = f"of {fmt.bytes_size(meters.memory_total_bytes)}" if meters.memory_total_bytes else ""
        figures.append(Figure("", fmt.bytes_size(meters.memory_used_bytes), of, 11))
    if meters.utilization_percent is not None:
        figures.append(Figure("GPU", f"{meters.utilization_percent} %", "of the time", 12))
    return figures


def _freshness(view: View, moment: Moment) -> list[Figure]:
    """The age of the figures if it is worth a word, and how many reports were dropped."""
    figures = []
    if moment.frozen:
        figures.append(Figure("", "frozen", "", 1, "warn"))
    elif view.stats is not None and view.stats_at is not None:
        seconds = moment.now - view.stats_at
        if seconds > STALE_AFTER_S and (view.live_figures or view.died is not None):
            figures.append(Figure("", fmt.age(seconds), "old", 1, "warn"))
    if view.stats is not None and view.stats.dropped:
        figures.append(Figure("", fmt.count(view.stats.dropped, 7), "dropped", 7, "warn"))
    return figures
