"""Matches the kernels of two reports by name."""

from dataclasses import dataclass

from decodescope.analyzer.schema.comparison_report import Change
from decodescope.analyzer.schema.report import Report


@dataclass(frozen=True, slots=True)
class KernelChange:
    """One kernel of both sides: calls and ns per step (for two traces without steps in all); a side
    that lacks it is null. If ops overlap on a side, `ns` is attributed time."""

    name: str
    count: Change
    ns: Change

    @property
    def moved_ns(self) -> float:
        """How much time more `other` takes than `base`; a kernel that a side lacks takes none."""
        return (self.ns.other or 0.0) - (self.ns.base or 0.0)


def kernel_changes(base: Report, other: Report) -> tuple[KernelChange, ...]:
    """Every kernel of both sides, the one whose time changed most first; none if only one side has
    steps. The changes add up to that of the kernels' time."""
    if bool(base.steps) != bool(other.steps):
        return ()
    attributed = base.overlapping or other.overlapping
    before, after = (_kernels(report, attributed) for report in (base, other))
    none = (None, None)
    rows = [
        KernelChange(
            name,
            Change(before.get(name, none)[0], after.get(name, none)[0]),
            Change(before.get(name, none)[1], after.get(name, none)[1]),
        )
        for name in dict.fromkeys((*before, *after))
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.moved_ns), row.name)))


def _kernels(report: Report, attributed: bool) -> dict[str, tuple[float, float]]:
    """Calls and ns per step of each kernel."""
    steps = len(report.steps) or 1
    return {
        kernel.name: (
            kernel.count / steps,
            (kernel.attributed_ns if attributed else kernel.total_ns) / steps,
        )
        for kernel in report.kernels
    }
