"""The header figures, in large digits if there is room."""

from dataclasses import dataclass
from typing import Literal

from rich.style import Style

from decodescope.analyzer import formatting as fmt
from decodescope.analyzer.reports.per_step import (
    communication_fraction,
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.roofline.peaks import bandwidth
from decodescope.analyzer.schema.run_report import Bandwidth
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel, Row, Sheet
from decodescope.tui.style.glyphs import big

Tone = Literal["lead", "plain", "warn", "stale"]

STALE_AFTER_S = 3.0
_SIDE_CELLS = 21
_MIN_CELLS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: a long and a short label (with the unit), its text, and its tone."""

    label: str
    short: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class FiguresData:
    """`main` figures are drawn large, `side` ones small; `note` says where they come from."""

    main: tuple[Figure, ...]
    side: tuple[Figure, ...]
    note: str = ""


class FiguresPanel(Panel[FiguresData]):
    """Big digits in a box, or a label above each figure, in one or two bands."""

    NAME = "figures"
    FRAMES = ("box",)
    AGES = True

    def pick(self, view: View, moment: Moment) -> FiguresData:
        live: Tone = "plain" if view.live_figures or view.kind == "trace" else "stale"
        lead: Tone = "lead" if live == "plain" else "stale"
        stats, cpu, used = view.stats, view.on_cpu, _mbu(view)
        tokens_per_s = p50_ns = p99_ns = tokens = dropped = launches = ops = idle = shared = None
        if stats is not None:
            tokens_per_s, tokens, dropped = stats.tokens_per_s, stats.tokens, stats.dropped
            p50_ns, p99_ns = stats.step_p50_ns, stats.step_p99_ns
        if view.window is not None:
            report = view.window.report
            launches = None if cpu else launch_calls_per_step(report)
            ops, idle = gpu_ops_per_step(report), idle_fraction(report)
            shared = communication_fraction(report)
        names = ("OPERATORS", "ops", "OP IDLE %") if cpu else ("GPU OPS", "GPU ops", "GPU IDLE %")
        mbu = "MBU % (datasheet)" if used is not None and used.mbu_of == "datasheet" else "MBU %"
        main: tuple[Figure, ...] = (
            Figure("TOK/S", "tok/s", fmt.rate(tokens_per_s), lead),
            Figure("MS/STEP p50", "ms p50", fmt.milliseconds(p50_ns), live),
            Figure("LAUNCHES/STEP", "launches", fmt.number(launches), live),
            Figure(f"{names[0]}/STEP", names[1], fmt.number(ops), live),
            Figure(names[2], "idle %", fmt.percent(idle), live),
            Figure(mbu, "MBU %", fmt.percent(used.mbu if used else None), live),
        )
        if shared:
            main += (Figure("COMMUNICATION %", "comm %", fmt.percent(shared), live),)
        side = (
            Figure("", "ms p99", fmt.milliseconds(p99_ns), live),
            Figure("", "tokens", fmt.count(tokens, 7), live),
            Figure("", "age", *_age(view, moment)),
            Figure("", "dropped", fmt.count(dropped, 7), "warn" if dropped else "stale"),
        )
        note = f"launches, ops and idle: {view.window_note(moment)}" if view.window else ""
        return FiguresData(main, side, note)

    def as_text(self, data: FiguresData) -> list[str]:
        return [f"{figure.short:<12} {figure.text}" for figure in (*data.main, *data.side)]

    def draw(self, data: FiguresData, width: int, height: int) -> Sheet:
        if self._brush.frame == "box":
            return Sheet(self._large(data, width), "Decode step", data.note)
        figures = (*data.main[:2], *data.side[:1], *data.main[2:], *data.side[1:])
        if height >= 4 and width < 80:
            half = (len(figures) + 1) // 2
            return Sheet(self._band(figures[:half], width) + self._band(figures[half:], width))
        return Sheet(self._band(figures, width))

    def _style(self, figure: Figure) -> Style:
        inks = self._brush.inks
        if figure.text == fmt.UNKNOWN:
            return inks.faint
        tones = {"lead": inks.accent, "warn": inks.warn, "stale": inks.dim, "plain": inks.strong}
        return tones[figure.tone]

    def _band(self, figures: tuple[Figure, ...], width: int) -> list[Row]:
        labels, values = Row(), Row()
        least = [max(len(figure.short), len(figure.text), _MIN_CELLS) for figure in figures]
        spare = max(width - 2 - sum(least), 0) / max(len(figures), 1)
        start = 1.0
        for figure, cells in zip(figures, least, strict=True):
            labels.to(round(start)).add(figure.short, self._brush.inks.dim)
            bold = self._style(figure) + Style(bold=figure.text != fmt.UNKNOWN)
            values.to(round(start)).add(figure.text, bold)
            start += cells + max(spare, 1.0)
        return [labels, values]

    def _large(self, data: FiguresData, width: int) -> list[Row]:
        inks = self._brush.inks
        rows = [Row() for _ in range(4)]
        main_width = max(width - _SIDE_CELLS - 2, 0)
        slots = len(data.main)
        for index, figure in enumerate(data.main):
            start, end = index * main_width // slots, (index + 1) * main_width // slots
            label = figure.label if len(figure.label) < end - start else figure.short
            rows[0].to(start).left(label, end - start - 1, inks.dim)
            pieces = self._digits(figure.text, end - start - 1, figure.tone == "lead")
            for row, piece in zip(rows[1:], pieces, strict=True):
                row.to(start).add(piece, self._style(figure))
        for row, figure in zip(rows, data.side, strict=False):
            row.to(main_width).add("│ ", inks.border)
            row.left(figure.short, 9, inks.dim)
            row.right(figure.text, _SIDE_CELLS - 9, self._style(figure))
        return rows

    def _digits(self, text: str, cells: int, bold: bool) -> tuple[str, str, str]:
        if self._brush.glyphs.unicode:
            for candidate in (text, text.replace(",", "")):
                digits = big(candidate, bold)
                if len(digits[0]) <= cells:
                    return digits
        return "", text[:cells], ""


def _mbu(view: View) -> Bandwidth | None:
    stats, hello = view.stats, view.hello
    if stats is None or hello is None:
        return None
    return bandwidth(
        stats.bytes_per_step,
        stats.step_p50_ns,
        hello.measured_peak_bytes_per_s,
        hello.datasheet_peak_bytes_per_s,
    )


def _age(view: View, moment: Moment) -> tuple[str, Tone]:
    if moment.frozen:
        return "frozen", "warn"
    if view.stats_at is None or view.stats is None:
        return fmt.UNKNOWN, "stale"
    seconds = moment.now - view.stats_at
    late = seconds > STALE_AFTER_S and (view.live_figures or view.died is not None)
    return fmt.age(seconds), "warn" if late else "plain"
