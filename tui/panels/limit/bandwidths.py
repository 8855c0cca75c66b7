"""The bandwidth that a step reaches."""

from decodescope.analyzer.reports.step_figures import (
    StepBandwidth,
    live_bandwidth,
    window_bandwidths,
)
from decodescope.analyzer.text.formatting import UNKNOWN, duration, percent, significant
from decodescope.analyzer.vocabulary.class_colors import LIMIT_COLOR
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine
from decodescope.tui.style.palette import horizontal_bar

_BANDWIDTHS_TITLE = "Bandwidth: bytes of a step ÷ its time"
_WORDS = {
    "now": "unprofiled: the median of the last report",
    "before the window": "unprofiled",
    "in the window": "with the profiler on",
}
_NAME_CELLS, _MBU_CELLS, _RATE_CELLS, _STEP_CELLS = 20, 8, 12, 10
_LEAST_BAR, _LEAST_WORDS = 8, 24


class BandwidthPanel(Panel[tuple[StepBandwidth, ...]]):
    """MBU now, just before the window, and in it; each is another step."""

    NAME = "bandwidths"

    def pick(self, view: View, moment: Moment) -> tuple[StepBandwidth, ...] | Empty:
        live = live_bandwidth(view.stats, view.hello) if not view.on_cpu else None
        bandwidths: tuple[StepBandwidth, ...] = (live,) if live is not None else ()
        if view.window is not None:
            bandwidths += window_bandwidths(view.window.report)
        if bandwidths:
            return bandwidths
        if view.window is None:
            return Empty(_BANDWIDTHS_TITLE, view.waiting)
        if view.on_cpu:
            return Empty(_BANDWIDTHS_TITLE, "device: cpu; the bandwidth of a CPU is not measured")
        return Empty(_BANDWIDTHS_TITLE, "this trace does not say how many bytes a step reads")

    def wanted_rows(self, width: int) -> int | None:
        return 1 if isinstance(self._data, Empty) else len(self._data) + 1

    def as_text(self, data: tuple[StepBandwidth, ...]) -> list[TextLine]:
        return [_BANDWIDTHS_TITLE, *(tuple(_texts(bandwidth)) for bandwidth in data)]

    def draw(self, data: tuple[StepBandwidth, ...], width: int, height: int) -> Sheet:
        inks = self._brush.inks
        used = _NAME_CELLS + _MBU_CELLS + _RATE_CELLS + _STEP_CELLS
        words = width - used - 2 if width - used - 2 >= _LEAST_WORDS else 0
        bar = min(words - 44, 40)
        if bar < _LEAST_BAR:
            bar = 0
        words -= bar + 1 if bar else 0
        head = Row().left("a step", _NAME_CELLS, inks.dim).right("MBU", _MBU_CELLS, inks.dim)
        head.right("reads", _RATE_CELLS, inks.dim).right("took", _STEP_CELLS, inks.dim)
        rows = [head]
        for bandwidth in data:
            name, mbu, rate, step, text = _texts(bandwidth)
            row = Row().left(name, _NAME_CELLS, inks.text).right(mbu, _MBU_CELLS, inks.strong)
            row.right(rate, _RATE_CELLS, inks.text).right(step, _STEP_CELLS, inks.text)
            row.add("  ", inks.text)
            if bar:
                piece = horizontal_bar(bandwidth.used.mbu or 0.0, bar, self._brush.glyphs)
                row.add(piece, inks.hue(LIMIT_COLOR)).add(" ", inks.text)
            rows.append(row.left(text, words, inks.dim))
        if len(rows) > height:
            del rows[0]
        return Sheet(rows[:height], _BANDWIDTHS_TITLE, _peaks(data[-1]))


def _texts(bandwidth: StepBandwidth) -> tuple[str, str, str, str, str]:
    used = bandwidth.used
    return (
        bandwidth.moment,
        UNKNOWN if used.mbu is None else f"{percent(used.mbu)} %",
        f"{significant(used.achieved_bytes_per_s / 1e9)} GB/s",
        duration(bandwidth.step_ns),
        _WORDS[bandwidth.moment],
    )


def _peaks(bandwidth: StepBandwidth) -> str:
    peaks = {
        "measured": bandwidth.used.measured_peak_bytes_per_s,
        "datasheet": bandwidth.used.datasheet_peak_bytes_per_s,
    }
    known = [f"{significant(peak / 1e12)} TB/s {name}" for name, peak in peaks.items() if peak]
    return f"MBU of {known[0]}" if known else "no peak known for this device"
