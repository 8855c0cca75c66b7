"""What part of time is on the screen: exact in whole nanoseconds, at any width."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from decodescope.analyzer.trace import Int64s


@dataclass(frozen=True, slots=True)
class Viewport:
    """The time from `start_ns` on, `span_ns` long, drawn in some number of equal columns.

    The columns are not part of it, so a terminal of another width shows the same time.
    """

    start_ns: int
    span_ns: int

    @property
    def end_ns(self) -> int:
        """The end of the time shown."""
        return self.start_ns + self.span_ns

    def edges_ns(self, columns: int) -> Int64s:
        """The edges of the columns: int64 [columns + 1], start + floor(i * span / columns)."""
        whole, rest = divmod(self.span_ns, max(columns, 1))
        place = np.arange(columns + 1, dtype=np.int64)
        # No product exceeds the span, so times near the limits of int64 stay exact.
        return np.asarray(self.start_ns + place * whole + place * rest // max(columns, 1))

    def column_of(self, at_ns: int, columns: int) -> int:
        """The last column whose edge is at or before `at_ns`; below 0 or at least `columns` if that
        is outside."""
        return -(-(at_ns - self.start_ns + 1) * columns // max(self.span_ns, 1)) - 1

    def zoomed(self, factor: Fraction, at_ns: int) -> Self:
        """`factor` times as much time, with `at_ns` in the same place."""
        span_ns = max(int(self.span_ns * factor), 1)
        before_ns = (at_ns - self.start_ns) * span_ns // max(self.span_ns, 1)
        return type(self)(at_ns - before_ns, span_ns)

    def panned(self, share: Fraction) -> Self:
        """Moved by a share of the time shown, at least 1 ns."""
        step_ns = max(int(self.span_ns * abs(share)), 1)
        return type(self)(self.start_ns + (step_ns if share > 0 else -step_ns), self.span_ns)

    def showing(self, start_ns: int, end_ns: int) -> Self:
        """Moved, and if necessary zoomed out, so that [start, end] is inside.

        What is outside comes to the middle.
        """
        if self.start_ns <= start_ns and end_ns <= self.end_ns:
            return self
        length_ns = end_ns - start_ns
        span_ns = self.span_ns if length_ns <= self.span_ns else length_ns + length_ns // 4
        return type(self)(start_ns - (span_ns - length_ns) // 2, span_ns)

    def within(self, start_ns: int, end_ns: int, columns: int) -> Self:
        """The nearest one inside [start, end], with at least 1 ns a column where there is room."""
        span_ns = min(max(self.span_ns, columns, 1), max(end_ns - start_ns, 1))
        return type(self)(max(min(self.start_ns, end_ns - span_ns), start_ns), span_ns)


def fitting(start_ns: int, end_ns: int) -> Viewport:
    """[start, end] with a margin of a twentieth on both sides."""
    margin_ns = (end_ns - start_ns) // 20
    return Viewport(start_ns - margin_ns, max(end_ns - start_ns + 2 * margin_ns, 1))
