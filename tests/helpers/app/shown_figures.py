"""The figures that a page of the app shows, read back from its text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, str]
_NUMBER = re.compile(r"^(<)?([+-]?[\d,]+(?:\.(\d+))?)(?: (\S+))?$")
_UNITS = {
    None: 1.0,
    "ns": 1.0,
    "µs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    **{f"{letter}FLOP/s": 10.0**power for letter, power in zip("kMGT", (3, 6, 9, 12), strict=True)},
    "FLOP/s": 1.0,
}


@dataclass(frozen=True)
class Shown:
    """A number as it is shown, in ns, FLOP/s or as it is, and how far the exact one may be from it.
    `below`: it is only said to be below the number."""

    value: float
    slack: float
    below: bool = False

    def is_figure(self, exact: float) -> bool:
        if self.below:
            return 0 <= exact < self.value
        return abs(exact - self.value) <= self.slack * (1 + 1e-9)


def shown(text: str) -> Shown | None:
    """The number of a cell; None for a dash and for words."""
    found = _NUMBER.match(text.strip())
    if found is None or found[4] not in _UNITS:
        return None
    digits, unit = found[2].replace(",", ""), _UNITS[found[4]]
    return Shown(float(digits) * unit, 0.5 * unit * 10.0 ** -len(found[3] or ""), bool(found[1]))


def tables(page: str) -> Iterator[Sequence[Row]]:
    """The tables of the text of a page, each row by its headings; a heading that is empty or that
    the row before has is numbered."""
    rows: list[Row] = []
    heads: list[str] = []
    for line in [*page.splitlines(), ""]:
        cells = line.split("\t")
        if len(cells) < 2 or (heads and len(cells) != len(heads)):
            if rows:
                yield rows
            rows, heads = [], []
        if len(cells) > 1 and not heads:
            heads = [
                f"{head} {place}" if not head or head in cells[:place] else head
                for place, head in enumerate(cells)
            ]
        elif len(cells) > 1:
            rows.append(dict(zip(heads, cells, strict=True)))
