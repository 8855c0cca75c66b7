"""The lines above every page: the run, its device and its state; and the most important figures."""

from dataclasses import dataclass, replace
from typing import Literal

from rich.cells import cell_len

from decodescope.analyzer.reports.step_figures import (
    communication_fraction,
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
    live_bandwidth,
)
from decodescope.analyzer.tables.servers_table import SERVER_COLUMNS
from decodescope.analyzer.text import formatting as fmt
from decodescope.analyzer.text.formatting import parallel_words, sampling_facts, shorten
from decodescope.analyzer.vocabulary.answer_words import limit_words
from decodescope.analyzer.vocabulary.words import bound_words
from decodescope.tui.model.attached import Attached
from decodescope.tui.model.view import ANSWER_PAGE, LOG_PAGE, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet

_LONG_CELLS = 28
STALE_AFTER_S = 3.0
_WARNINGS = ("interpreted", "random weights", "device: cpu")

_DETAILED = ("starting", "reading", "loading", "building", "ending", "ended")

BadgeTone = Literal["accent", "warn", "dim", "bad"]
FigureTone = Literal["accent", "strong", "warn", "dim"]

_BADGE_TONES: dict[str, BadgeTone] = {
    **dict.fromkeys(("running", "trace"), "accent"),
    **dict.fromkeys(("paused", "ended"), "dim"),
    **dict.fromkeys(("failed", "worker died", "unreadable"), "bad"),
}


@dataclass(frozen=True, slots=True)
class TitleData:
    """`badges` are filled labels, each with its tone. `facts` are in order of importance; if they
    do not fit, long ones after the first are cut, and then the last ones dropped."""

    badges: tuple[tuple[str, BadgeTone], ...]
    facts: tuple[str, ...]


class TitlePanel(Panel[TitleData]):
    """Name and facts, and at the right end the state."""

    NAME = "title"
    FRAMES = ()

    def pick(self, view: View) -> TitleData:
        badges: list[tuple[str, BadgeTone]] = []
        if view.frozen:
            badges.append(("frozen", "warn"))
        if view.following:
            badges.append(("following", "accent"))
        elif view.kind == "replay":
            badges.append(("replay", "warn"))
        text, tone = view.state, _BADGE_TONES.get(view.state, "warn")
        if (silent_s := view.silent_s) is not None:
            remedy = "" if view.following else ", R restarts it"
            text, tone = f"no word from the worker for {silent_s:.0f} s{remedy}", "bad"
        elif view.detail and view.state in _DETAILED:
            stage = view.progress
            text = stage if stage.startswith(view.state) else f"{view.state}: {stage}"
        if view.playback is not None and not view.following:
            text = view.playback.state
            tone = "accent" if text == "playing" else "dim"
        if not view.is_attached or view.state != "trace":
            badges.append((text, tone))
        if view.attached is not None and (view.is_attached or view.attached.problem):
            badges.append(_target_badge(view.attached, view.now))
        if view.recording:
            badges.append(("rec", "bad"))
        if view.unseen and view.page != LOG_PAGE:
            badges.append((f"\u26a0{view.unseen}", "warn"))
        return TitleData(tuple(badges), _run_facts(view))

    def as_text(self, data: TitleData) -> list[str]:
        return ["decodescope  " + " · ".join([*(text for text, _ in data.badges), *data.facts])]

    def draw(self, data: TitleData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        end = Row()
        for text, tone in data.badges:
            shown = shorten(text, max(width - end.cells - 4, 4))
            end.add(" ", inks.text).add(f" {shown} ", inks.chip(getattr(inks, tone)))
        row, room, facts = Row().add(" ", inks.text), width - end.cells, data.facts
        if not _fit(facts, room):
            facts = (*facts[:1], *(shorten(fact, _LONG_CELLS) for fact in facts[1:]))
        if _fit(facts, room) or not facts:
            row.left("decodescope  ", min(13, max(room - 1, 0)), inks.title)
        separator = ""
        for fact in facts:
            if not separator:
                fact = shorten(fact, max(room - row.cells, 1))
            if row.cells + len(separator) + cell_len(fact) > room:
                break
            row.add(separator, inks.faint).add(fact, inks.warn if fact in _WARNINGS else inks.text)
            separator = " · "
        row = Row().row(row, max(room, 0))
        row.segments.extend(end.segments)
        row.cells += end.cells
        return Sheet([row])


def _fit(facts: tuple[str, ...], room: int) -> bool:
    """Whether they fit behind the program's name."""
    return sum(cell_len(fact) + 3 for fact in facts) + 13 <= room


def _target_badge(attached: Attached, now: float) -> tuple[str, BadgeTone]:
    if silence := attached.silence(now):
        return silence, "bad"
    return (attached.stage, "warn") if attached.stage else ("attached", "accent")


def _run_facts(view: View) -> tuple[str, ...]:
    if view.attached is not None:
        return tuple(filter(None, (view.attached.target.name, view.variant)))
    about, file = view.about, view.variant if view.kind == "trace" else view.source_name
    file_facts = [file] if file else []
    if about is None:
        return tuple(file_facts)
    facts = [about.model.removesuffix("@random")]
    if view.kind != "trace" and view.variant:
        facts.append(view.variant)
    elif view.window is not None and view.window.report.capture is not None:
        facts.append(view.window.report.capture.variant)
    drawn = sampling_facts(view.hello.sampling if view.hello else None)
    facts.extend(drawn[:1])
    if about.device == "cpu":
        facts.append("interpreted" if view.interpreted else "device: cpu")
    if about.weights == "random":
        facts.append("random weights")
    if about.tp > 1:
        facts.append(parallel_words(about.tp, view.hello is not None and view.hello.ep))
    device = "" if about.device == "cpu" else f"{about.device_name.removeprefix('NVIDIA ')} "
    facts.append(f"{device}{about.dtype} b{about.batch} c{about.context}")
    return (*facts, *file_facts, *drawn[1:])


@dataclass(frozen=True, slots=True)
class Figure:
    """`before` and `after` are dim words around it. The highest `priority` is dropped first."""

    before: str
    text: str
    after: str
    priority: int
    tone: FigureTone = "strong"

    @property
    def words(self) -> str:
        return " ".join(part for part in (self.before, self.text, self.after) if part)


class StripPanel(Panel[tuple[Figure, ...]]):
    """Figures that are not known are left out: a trace has no tokens/s."""

    NAME = "strip"
    FRAMES = ()
    PART = "figures"

    def pick(self, view: View) -> tuple[Figure, ...]:
        window = _window_figures(view)
        if view.attached is not None:
            # After the server's own figures, but for a step that the user chose.
            window = [
                replace(each, priority=each.priority and each.priority + 7) for each in window
            ]
        return (
            *_speed_figures(view),
            *_server_figures(view),
            *window,
            *_meter_figures(view),
            *_freshness_figures(view),
        )

    def as_text(self, data: tuple[Figure, ...]) -> list[str]:
        return ["  ".join(figure.words for figure in data)]

    def draw(self, data: tuple[Figure, ...], width: int, height: int) -> Sheet:
        inks, row = self._brush.inks, Row().add(" ", self._brush.inks.text)
        kept = list(data)
        while kept and sum(cell_len(figure.words) + 3 for figure in kept) > width + 1:
            kept.remove(max(kept, key=lambda figure: figure.priority))
        for place, figure in enumerate(kept):
            if place:
                row.add("   ", inks.text)
            row.add(f"{figure.before} ".lstrip(), inks.dim)
            row.add(figure.text, getattr(inks, figure.tone))
            row.add(f" {figure.after}".rstrip(), inks.dim)
        return Sheet([row])


def _speed_figures(view: View) -> list[Figure]:
    stats = view.stats
    rates = stats and stats.rates
    if stats is None or rates is None:
        return []
    tone: FigureTone = "strong" if view.live_figures else "dim"
    lead: FigureTone = "accent" if view.live_figures else "dim"
    figures = [
        Figure("", fmt.rate(rates.tokens_per_s), "tok/s", 0, lead),
        Figure("p50", fmt.milliseconds(rates.step_p50_ns), "ms", 2, tone),
        Figure("p99", fmt.milliseconds(rates.step_p99_ns), "ms", 4, tone),
    ]
    live = live_bandwidth(stats, view.hello)
    if live is not None and live.mbu is not None:
        of = "of the datasheet's peak" if live.mbu_of == "datasheet" else ""
        figures.append(Figure("MBU now", f"{fmt.percent(live.mbu)} %", of, 5, tone))
    return figures


# The words around each figure. Both times are those between two tokens of a request.
_SERVER_WORDS = {
    "generated_per_s": ("", "{}", "tok/s"),
    "running": ("", "{}", "running"),
    "waiting": ("", "{}", "waiting"),
    "kv_fill": ("KV", "{} %", ""),
    "inter_token_p50_s": ("inter-token p50", "{}", "ms"),
    "inter_token_p99_s": ("p99", "{}", "ms"),
    "prompt_per_s": ("prefill", "{}", "tok/s"),
}


def _server_figures(view: View) -> list[Figure]:
    sample = view.attached.sample if view.attached is not None else None
    if view.attached is None or sample is None or sample.figures is None:
        return []
    tone: FigureTone = "dim" if view.attached.problem else "strong"
    lead: FigureTone = "dim" if view.attached.problem else "accent"
    figures = []
    for column in SERVER_COLUMNS:
        if column.key in _SERVER_WORDS and column.figure(sample.figures) is not None:
            before, text, after = _SERVER_WORDS[column.key]
            text = text.format(column.cell(sample.figures))
            ink = tone if column.priority else lead
            figures.append(Figure(before, text, after, column.priority, ink))
    return figures


def _window_figures(view: View) -> list[Figure]:
    if view.window is None:
        return []
    report, cpu = view.window.report, view.on_cpu
    tone: FigureTone = "strong" if view.live_figures or view.kind == "trace" else "dim"
    figures = []
    answer = report.answer
    if words := view.window.step_words:
        # A run's own figures come first, but for a step that the user chose.
        is_file = view.kind == "trace" and view.attached is None
        first = 0 if is_file or view.window.step is not None else 3
        if view.page == ANSWER_PAGE:
            figures.append(Figure("", words, "", first))
        else:
            figures.append(Figure(words, fmt.duration(answer.step_ns), "", first, "accent"))
            figures.append(Figure("", limit_words(answer), "", 3, tone))
            figures.append(Figure("", bound_words(answer.bound), "", 2, tone))
    if not cpu and (calls := launch_calls_per_step(report)) is not None:
        launches = "launch" if calls == 1 else "launches"
        figures.append(Figure("", fmt.number(calls), launches, 1, tone))
    if (ops := gpu_ops_per_step(report)) is not None:
        noun = ("operator" if cpu else "GPU op") + "s" * (ops != 1)
        figures.append(Figure("", fmt.number(ops), noun, 6, tone))
    if (idle := idle_fraction(report)) is not None:
        figures.append(Figure("op idle" if cpu else "idle", f"{fmt.percent(idle)} %", "", 1, tone))
    if shared := communication_fraction(report):
        figures.append(Figure("comm", f"{fmt.percent(shared)} %", "", 3, tone))
    return figures


def _meter_figures(view: View) -> list[Figure]:
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


def _freshness_figures(view: View) -> list[Figure]:
    figures = []
    if view.frozen:
        figures.append(Figure("", "frozen", "", 1, "warn"))
    elif view.stats is not None and view.stats_at is not None:
        seconds = view.now - view.stats_at
        if seconds > STALE_AFTER_S and (view.live_figures or view.died is not None):
            figures.append(Figure("", fmt.age(seconds), "old", 1, "warn"))
    if view.stats is not None and view.stats.dropped:
        figures.append(Figure("", fmt.count(view.stats.dropped, 7), "dropped", 7, "warn"))
    return figures
