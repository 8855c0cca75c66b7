"""The top line: what runs, where, and in which state."""

from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from decodescope.analyzer.text.formatting import sampling_facts, shorten
from decodescope.tui.link.base import Playback
from decodescope.tui.model.view import LOG_PAGE, Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet

_FILE_CELLS = 28
_WARNINGS = ("random weights", "device: cpu")

_DETAILED = ("starting", "reading", "loading", "building", "ending", "ended")

Tone = Literal["good", "busy", "idle", "bad"]

_TONES: dict[str, Tone] = {
    "running": "good", "capturing": "busy", "paused": "idle", "ended": "idle", "failed": "bad",
    "worker died": "bad", "trace": "good", "unreadable": "bad",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Badge:
    """A filled label."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class TitleData:
    """`facts` are in order of importance; the last ones are dropped if they do not fit."""

    badges: tuple[Badge, ...]
    facts: tuple[str, ...]


class TitlePanel(Panel[TitleData]):
    """Name and facts, and at the right end the state."""

    NAME = "title"
    FRAMES = ()
    AGES = True

    def pick(self, view: View, moment: Moment) -> TitleData:
        badges = []
        if moment.frozen:
            badges.append(Badge("frozen", "busy"))
        if view.following:
            badges.append(Badge("following", "good"))
        elif view.kind == "replay":
            badges.append(Badge("replay", "busy"))
        text, tone = view.state, _TONES.get(view.state, "busy")
        if (silent_s := view.silent_s(moment.now)) is not None:
            remedy = "" if view.following else ", R restarts it"
            text, tone = f"no word from the worker for {silent_s:.0f} s{remedy}", "bad"
        elif view.detail and view.state in _DETAILED:
            stage = view.progress(moment.now)
            text = stage if stage.startswith(view.state) else f"{view.state}: {stage}"
        shown = None if view.following else view.playback
        badges.append(_playback_badge(shown) if shown else Badge(text, tone))
        if view.recording:
            badges.append(Badge("rec", "bad"))
        if view.unseen and view.page != LOG_PAGE:
            badges.append(Badge(f"\u26a0{view.unseen}", "busy"))
        return TitleData(tuple(badges), _facts(view))

    def as_text(self, data: TitleData) -> list[str]:
        return ["decodescope  " + " · ".join([*(b.text for b in data.badges), *data.facts])]

    def draw(self, data: TitleData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        tones = {"good": inks.good, "busy": inks.warn, "idle": inks.dim, "bad": inks.bad}
        end = Row()
        for badge in data.badges:
            text = shorten(badge.text, max(width - end.cells - 4, 4))
            end.add(" ", inks.text).add(f" {text} ", inks.chip(tones[badge.tone]))
        row, room = Row().add(" ", inks.text), width - end.cells
        if sum(cell_len(fact) + 3 for fact in data.facts) + 13 <= room or not data.facts:
            row.left("decodescope  ", min(13, max(room - 1, 0)), inks.title)
        separator = ""
        for fact in data.facts:
            if row.cells + len(separator) + cell_len(fact) > room:
                break
            row.add(separator, inks.faint).add(fact, inks.warn if fact in _WARNINGS else inks.text)
            separator = " · "
        row = Row().row(row, max(room, 0))
        row.segments.extend(end.segments)
        row.cells += end.cells
        return Sheet([row])


def _playback_badge(playback: Playback) -> Badge:
    return Badge(playback.state, "good" if playback.state == "playing" else "idle")


def _facts(view: View) -> tuple[str, ...]:
    about = view.about
    if about is None:
        file = view.variant if view.kind == "trace" else view.source_name
        return (shorten(file, _FILE_CELLS),) if file else ()
    facts = [about.model.removesuffix("@random")]
    if view.kind != "trace" and view.variant:
        facts.append(view.variant)
    elif view.window is not None and view.window.report.capture is not None:
        facts.append(view.window.report.capture.variant)
    drawn = sampling_facts(view.hello.sampling if view.hello else None)
    facts.extend(drawn[:1])
    if about.device == "cpu":
        facts.append("device: cpu")
    if about.weights == "random":
        facts.append("random weights")
    device = "" if about.device == "cpu" else f"{about.device_name.removeprefix('NVIDIA ')} "
    facts.append(f"{device}{about.dtype} b{about.batch} c{about.context}")
    if file := view.variant if view.kind == "trace" else view.source_name:
        facts.append(shorten(file, _FILE_CELLS))
    facts.extend(drawn[1:])
    return tuple(facts)
