"""The busy time of one step by role, as one bar of equal scale for every trace."""

from collections.abc import Sequence

from markupsafe import Markup

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing
from decodescope.analyzer.schema.step_report import RoleReport
from decodescope.analyzer.text.formatting import duration, percent
from decodescope.analyzer.vocabulary.class_colors import ROLE_FAMILIES

_BAR_PX, _LETTER_PX = 30.0, 6.6


def roles_svg(name: str, roles: Sequence[RoleReport]) -> Markup | None:
    """Each role as long as its time, the longest first; None without time. A role that has room for
    it is labelled, all have a tip."""
    total_ns = sum(role.ns_per_step for role in roles)
    if not total_ns:
        return None
    about = ", ".join(f"{role.role} {percent(role.share)} %" for role in roles)
    drawing = Drawing(_BAR_PX, f"Busy time of a step of {name} by role", about)
    x = 0.0
    for role in roles:
        width = role.ns_per_step / total_ns * CHART_WIDTH
        if width > 0:
            _segment(drawing, role, x, width)
        x += width
    return drawing.markup()


def _segment(drawing: Drawing, role: RoleReport, x: float, width: float) -> None:
    text = f"{role.role} {duration(role.ns_per_step)}"
    tip = f"{text}, {percent(role.share)} % of busy time"
    drawing.rect(x, 0, width, _BAR_PX, f"f-{ROLE_FAMILIES.get(role.role, 'other')}", tip)
    for label in (text, role.role):
        if width >= len(label) * _LETTER_PX + 10:
            drawing.text(x + 6, _BAR_PX / 2 + 4, label, "on")
            break
