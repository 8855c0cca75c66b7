"""Everything that can be selected. One selection is shared by every page."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelPick:
    """All ops with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class OpPick:
    """One op: a row of `Trace.ops`."""

    row: int


@dataclass(frozen=True, slots=True)
class GapPick:
    """One gap: a row of `Timeline.gaps`."""

    row: int


@dataclass(frozen=True, slots=True)
class GapGroupPick:
    """The gaps of this class between ops of these two names."""

    gap_class: str
    prev: str
    next: str


@dataclass(frozen=True, slots=True)
class KernelGroupPick:
    """All kernels of one role, layer or module, as `by` says."""

    by: str
    name: str


@dataclass(frozen=True, slots=True)
class RangePick:
    """The ops launched inside the ranges with this path."""

    path: str


@dataclass(frozen=True, slots=True)
class SpanPick:
    """An interval of time on the trace's clock."""

    start_ns: int
    end_ns: int


Pick = KernelPick | KernelGroupPick | OpPick | GapPick | GapGroupPick | RangePick | SpanPick
# Rows and times mean something in one window only.
OF_ONE_WINDOW = (OpPick, GapPick, SpanPick)


@dataclass(frozen=True, slots=True)
class GapFilter:
    """Lists gaps with a part of this class and a length in (lower, upper] ns; None is any."""

    gap_class: str | None = None
    bucket_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection, and the range path `within` which kernels, gaps and the timeline are
    shown; None is the whole window. `gaps` also filters the list of gaps."""

    pick: Pick | None = None
    within: str | None = None
    gaps: GapFilter = GapFilter()

    @property
    def selects(self) -> bool:
        """Whether there is something to tell the details of."""
        return self.pick is not None or self.within is not None


NOTHING = Selection()
