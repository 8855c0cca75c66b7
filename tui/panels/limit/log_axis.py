"""A logarithmic axis in terminal cells."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_MARGIN = 1.6


@dataclass(frozen=True, slots=True)
class LogAxis:
    """`cells` cells from `low` to `high`, both above 0; each cell covers the same factor."""

    low: float
    high: float
    cells: int

    @classmethod
    def around(cls, values: Sequence[float], cells: int) -> "LogAxis":
        """An axis that holds every value, with a margin of a factor of 1.6."""
        return cls(min(values) / _MARGIN, max(values) * _MARGIN, max(cells, 1))

    def cell(self, value: float) -> int:
        """The cell of a value; the first or the last one for values outside."""
        if value <= self.low:
            return 0
        place = math.log(value / self.low) / math.log(self.high / self.low) * self.cells
        return min(int(place), self.cells - 1)

    def value(self, cell: int) -> float:
        return float(self.low * (self.high / self.low) ** ((cell + 0.5) / self.cells))

    def decades(self) -> Iterator[tuple[float, int]]:
        """The powers of ten on the axis and their cells."""
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        for power in range(first, last + 1):
            yield 10.0**power, self.cell(10.0**power)


def decade_text(value: float) -> str:
    """A power of ten in at most four characters: "10 G", "0.1"."""
    for factor, unit in _UNITS:
        if value >= factor * 0.999:
            return f"{value / factor:.0f}{' ' if unit else ''}{unit}"
    return f"{value:g}"
