"""A chart as an inline SVG element: shapes with class names, and escaped text.

Colours come from the page's style sheet by class name, so that one drawing works on light, dark and
paper. Coordinates are CSS pixels.
"""

from collections.abc import Iterable
from xml.etree import ElementTree

from markupsafe import Markup

from decodescope.analyzer.text.formatting import TIME_UNITS
from decodescope.analyzer.text.numbers import round_step
from decodescope.analyzer.text.plain import plain_line

CHART_WIDTH = 1120


class Drawing:
    """One chart with a title and a description for screen readers."""

    def __init__(self, height: float, title: str, description: str, width: float = CHART_WIDTH):
        self.width = width
        self.height = height
        self.root = ElementTree.Element(
            "svg",
            {
                "viewBox": f"0 0 {short(width)} {short(height)}",
                "role": "img",
                "aria-label": plain_line(f"{title}. {description}"),
                "class": "chart",
            },
        )
        ElementTree.SubElement(self.root, "title").text = plain_line(title)
        ElementTree.SubElement(self.root, "desc").text = plain_line(description)

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, tip: str = ""
    ) -> None:
        """A rectangle of class `kind`; `tip` appears under the pointer."""
        shape = self._add("rect", kind, x=x, y=y, width=width, height=height)
        self._tip(shape, tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def circle(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        self._tip(self._add("circle", kind, cx=x, cy=y, r=radius), tip)

    def boxes(
        self, boxes: Iterable[tuple[float, float, float, float]], kind: str, tip: str = ""
    ) -> None:
        """Many rectangles (x, y, width, height) as one shape, in a tenth of the bytes."""
        path = "".join(
            f"M{short(x)} {short(y)}h{short(w)}v{short(h)}h{short(-w)}z" for x, y, w, h in boxes
        )
        if path:
            shape = self._add("path", kind)
            shape.set("d", path)
            self._tip(shape, tip)

    def polygon(self, points: Iterable[tuple[float, float]], kind: str, tip: str = "") -> None:
        self._tip(self.through(points, "polygon", kind), tip)

    def through(
        self, points: Iterable[tuple[float, float]], tag: str, kind: str
    ) -> ElementTree.Element:
        """A polygon or a polyline through `points`."""
        shape = self._add(tag, kind)
        shape.set("points", " ".join(f"{short(x)},{short(y)}" for x, y in points))
        return shape

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """One line of text whose baseline is at `y`; `anchor` is start, middle or end."""
        shape = self._add("text", kind, x=x, y=y)
        if anchor != "start":
            shape.set("text-anchor", anchor)
        shape.text = plain_line(text)

    def markup(self) -> Markup:
        """The element as escaped markup for a page."""
        return Markup(ElementTree.tostring(self.root, encoding="unicode"))

    def _add(self, tag: str, kind: str, **numbers: float) -> ElementTree.Element:
        shape = ElementTree.SubElement(self.root, tag)
        for name, value in numbers.items():
            shape.set(name, short(value))
        if kind:
            shape.set("class", kind)
        return shape

    def _tip(self, shape: ElementTree.Element, tip: str) -> None:
        if tip:
            ElementTree.SubElement(shape, "title").text = plain_line(tip)


def ticks(limit: float, most: int = 10) -> list[float]:
    """Round values from 0 to at most `limit`, 1, 2 or 5 times a power of ten apart."""
    if limit <= 0:
        return [0.0]
    step = round_step(limit / most)
    return [step * index for index in range(int(limit / step) + 1)]


def time_ticks(limit_ns: int) -> list[tuple[float, str]]:
    """Round times from 0 to at most `limit_ns`, each in ns and as text in one unit."""
    factor, unit = next((f, u) for f, u in TIME_UNITS if limit_ns >= 2 * f or f == 1)
    return [(at, f"{at / factor:g} {unit}" if at else "0") for at in ticks(limit_ns)]


def short(value: float) -> str:
    """At most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
