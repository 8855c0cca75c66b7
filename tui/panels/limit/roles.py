"""The median decode step by role: its time, and where the bytes are known its rate and limit."""

from dataclasses import dataclass

from decodescope.analyzer.schema.structure_report import RoleReport
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS, ROLE_FAMILIES
from decodescope.analyzer.vocabulary.words import (
    ROLE_KNOWN_BY,
    layers_words,
    role_limit,
    role_of_limit,
    role_rate,
)
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, TextLine
from decodescope.tui.style.palette import horizontal_bar

TITLE = "Busy time of a step by role"
_NAME_CELLS, _LEAST_BAR, _MOST_BAR = 15, 8, 40
_HEADS = ("ops", "time", "share", "GB/s", "limit", "of limit", "by")
_CELLS = {"ops": 7, "time": 9, "share": 8, "GB/s": 8, "limit": 9, "of limit": 9, "by": 9}
# What goes first where room is short.
_DROPPED = ("by", "limit", "ops", "of limit", "GB/s", "share")
_OF_BYTES = ("GB/s", "limit", "of limit")


@dataclass(frozen=True, slots=True)
class RolesData:
    """The roles, the longest first, and the layers in words ("" without any)."""

    roles: tuple[RoleReport, ...]
    layers: str


class RolesPanel(Panel[RolesData]):
    """One row a role; roles add up to the busy time of the step."""

    NAME = "roles"

    def pick(self, view: View, moment: Moment) -> RolesData | Empty:
        if view.window is None:
            return Empty(TITLE, view.waiting)
        report = view.window.report
        if not report.roles:
            return Empty(TITLE, "no step of this trace launched an op")
        structure = report.structure
        layers = layers_words(structure) if structure is not None and structure.layers else ""
        return RolesData(report.roles, layers)

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else len(self._data.roles) + 1

    def as_text(self, data: RolesData) -> list[TextLine]:
        lines: list[TextLine] = [f"{TITLE}: {data.layers}" if data.layers else TITLE]
        lines.append(("role", *_HEADS))
        return [*lines, *((role.role, *_texts(role).values()) for role in data.roles)]

    def draw(self, data: RolesData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        heads = _fitting(data, width)
        bar = min(width - _NAME_CELLS - sum(_CELLS[head] for head in heads) - 2, _MOST_BAR)
        if bar < _LEAST_BAR:
            bar = 0
        head = Row().left("role", _NAME_CELLS, inks.dim)
        for name in heads:
            head.right(name, _CELLS[name], inks.dim)
        shown = data.roles[: max(height - 1, 1)]
        rows = [head, *(self._role(role, heads, bar) for role in shown)]
        if len(rows) > height:
            del rows[0]
        more = len(data.roles) - len(shown)
        note = f"{more} more roles take less" if more else data.layers
        return Sheet(rows[:height], TITLE, note)

    def _role(self, role: RoleReport, heads: list[str], bar: int) -> Row:
        inks, glyphs = self._brush.inks, self._brush.glyphs
        family = ROLE_FAMILIES.get(role.role, "other")
        hue, texts = inks.family(family), _texts(role)
        row = Row().add(f"{inks.mark(FAMILY_LETTERS[family], glyphs.swatch)} ", hue)
        row.left(role.role, _NAME_CELLS - 2, inks.text)
        for name in heads:
            style = inks.strong if name == "time" else inks.dim if name in ("ops", "by") else None
            row.right(texts[name], _CELLS[name], style or inks.text)
        if bar:
            row.add("  ", inks.text).add(horizontal_bar(role.share, bar, glyphs), hue)
        return row


def _fitting(data: RolesData, width: int) -> list[str]:
    """The columns that fit, those of bytes only if any role's are known; a bar goes before how a
    role is known."""
    known = any(role.bytes is not None for role in data.roles)
    heads = [head for head in _HEADS if known or head not in _OF_BYTES]
    for dropped in _DROPPED:
        more = _LEAST_BAR + 2 if dropped == "by" else 0
        if _NAME_CELLS + sum(_CELLS[head] for head in heads) + more <= width:
            break
        heads = [head for head in heads if head != dropped]
    return heads


def _texts(role: RoleReport) -> dict[str, str]:
    of_limit = role_of_limit(role)
    return {
        "ops": count(role.ops_per_step),
        "time": duration(role.ns_per_step),
        "share": f"{percent(role.share)} %",
        "GB/s": role_rate(role),
        "limit": role_limit(role),
        "of limit": f"{of_limit} %" if of_limit else "",
        "by": ROLE_KNOWN_BY[role.confidence],
    }
