"""The banner, and how many rows it needs."""

import textwrap

from decodescope.analyzer.text.formatting import shorten
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.model.notices import Banner
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Row, Sheet

BAR = "▌ "
HINT_GAP = "   "


def headlines(banner: Banner, width: int) -> list[str]:
    """The headline, wrapped to fit beside the bar in `width` cells."""
    return textwrap.wrap(plain_line(banner.headline), max(width - len(BAR), 1)) or [""]


def hint_has_own_row(banner: Banner, width: int) -> bool:
    """Whether the hint needs a row: there are details, or the headline leaves no room."""
    beside = len(headlines(banner, width)[-1]) + len(HINT_GAP) + len(banner.hint)
    return bool(banner.hint) and (bool(banner.details) or beside > width - len(BAR))


def banner_rows(banner: Banner | None, width: int, height: int) -> int:
    """The rows it takes on a screen of this size: at least one, at most a quarter of the height."""
    if banner is None:
        return 0
    wanted = len(headlines(banner, width)) + len(banner.details) + hint_has_own_row(banner, width)
    return max(1, min(wanted, height // 4))


class BannerPanel(Panel[Banner | None]):
    """A coloured block. If rows are short, the oldest details are dropped first, then the end of
    the headline; on a single row the hint is cut off with the headline."""

    NAME = "banner"
    FRAMES = ()

    def pick(self, view: View, moment: Moment) -> Banner | None:
        return view.banner

    def draw(self, data: Banner | None, width: int, height: int) -> Sheet:
        if data is None:
            return Sheet([])
        inks = self._brush.inks
        ink = inks.bad if data.severity == "error" else inks.warn
        room = max(width - len(BAR), 0)
        own_hint = hint_has_own_row(data, width) and height > 1
        lines = headlines(data, width)
        if len(lines) > (most := max(height - own_hint, 1)):
            last = " ".join(lines[most - 1 :])
            lines = [*lines[: most - 1], shorten(last, room)]
        rows = [Row().add(BAR, ink).left(line, room, ink) for line in lines[:-1]]
        last_row = Row().add(BAR, ink).add(lines[-1], ink)
        if data.hint and not own_hint:
            last_row.left(HINT_GAP + data.hint, max(width - last_row.cells, 0), inks.dim)
        rows.append(last_row)
        left = max(height - len(rows) - own_hint, 0)
        for detail in data.details[len(data.details) - left :] if left else ():
            rows.append(Row().add(BAR, ink).left(" ".join(detail.split()), room, inks.dim))
        if own_hint:
            rows.append(Row().add(BAR, ink).left(data.hint, room, inks.text))
        return Sheet(rows)
