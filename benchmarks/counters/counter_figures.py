"""A variant's step beside the counters: sums, shares by reason, and what the terminal shows."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from rich.console import Group
from rich.table import Table

from benchmarks.counters.counter_check import (
    NOT_EXPLAINED,
    SLOWER,
    TOLERANCE,
    WITHIN,
    Joined,
    KernelRow,
)
from benchmarks.harness.tables import figures_table, share_cell
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    duration,
    ratio_text,
    shorten,
    signed_duration,
)

SLOWEST = 8


class Quantiles(Struct, frozen=True):
    """Over the kernels of a step."""

    p10: float
    median: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        """Of at least one value."""
        return cls(*np.percentile(values, (10, 50, 90)).tolist())


class Reason(Struct, frozen=True):
    """The kernels with one reason; `share` is theirs of the step's traced time, or of its claimed
    bytes, and `difference` the sum of (ncu - trace) in ns, or of (DRAM - claimed) in bytes."""

    reason: str
    kernels: int
    share: float
    difference: float


class VariantFigures(Struct, frozen=True):
    """One variant's step on both sides. Times are sums over the kernels, `within` the share of
    traced time whose kernels are within 2 %. Those with `_less_offset` are of ncu's durations less
    that of a kernel that does nothing, as `Probes` has it. Bytes are sums over the kernels with a
    claim, null without any."""

    variant: str
    measured_as: str
    kernels: int
    copies: int
    trace_ns: float
    ncu_ns: float
    ncu_less_offset_ns: float
    idle_before_ns: Quantiles
    trace_over_ncu: Quantiles
    trace_over_ncu_less_offset: Quantiles
    ncu_minus_trace_ns: Quantiles
    within: float
    within_less_offset: float
    reasons: tuple[Reason, ...]
    kernels_with_claim: int
    claimed_bytes: int | None
    dram_bytes: float | None
    dram_read_bytes: float | None
    byte_reasons: tuple[Reason, ...]
    joined: Joined


def figures(variant: str, measured: str, both: Joined, copies: int) -> VariantFigures:
    """The sums and shares of one variant's kernels."""
    rows = both.rows
    trace_ns = sum(row.trace_ns for row in rows)
    claimed = [row for row in rows if row.claimed_bytes is not None]
    times = [(row.why, row.trace_ns, row.ncu_ns) for row in rows]
    moved = [(row.why_bytes or "", row.claimed_bytes or 0, row.dram_bytes) for row in claimed]
    reasons = _reasons(times)
    # At least 1 ns: the offset is a median, and a kernel may take less.
    offset_ns = both.probes.offset_ns
    less = [(row.trace_ns, max(row.ncu_ns - offset_ns, 1.0)) for row in rows]
    near = sum(ours for ours, theirs in less if abs(theirs - ours) <= TOLERANCE * ours)
    return VariantFigures(
        variant=variant,
        measured_as=measured,
        kernels=len(rows),
        copies=copies,
        trace_ns=trace_ns,
        ncu_ns=sum(row.ncu_ns for row in rows),
        ncu_less_offset_ns=sum(theirs for _, theirs in less),
        idle_before_ns=Quantiles.of([row.idle_before_ns for row in rows]),
        trace_over_ncu=Quantiles.of([row.trace_over_ncu for row in rows]),
        trace_over_ncu_less_offset=Quantiles.of([ours / theirs for ours, theirs in less]),
        ncu_minus_trace_ns=Quantiles.of([row.ncu_ns - row.trace_ns for row in rows]),
        within=_share_of(reasons, WITHIN),
        within_less_offset=near / trace_ns,
        reasons=reasons,
        kernels_with_claim=len(claimed),
        claimed_bytes=sum(row.claimed_bytes or 0 for row in claimed) if claimed else None,
        dram_bytes=sum(row.dram_bytes for row in claimed) if claimed else None,
        dram_read_bytes=sum(row.dram_read_bytes for row in claimed) if claimed else None,
        byte_reasons=_reasons(moved),
        joined=both,
    )


def _reasons(rows: Sequence[tuple[str, float, float]]) -> tuple[Reason, ...]:
    """By reason, from (reason, ours, the counters'), the largest share first."""
    total = sum(ours for _, ours, _ in rows)
    found = []
    for reason in dict.fromkeys(reason for reason, _, _ in rows):
        mine = [(ours, theirs) for other, ours, theirs in rows if other == reason]
        share = sum(ours for ours, _ in mine) / total if total else 0.0
        difference = sum(theirs - ours for ours, theirs in mine)
        found.append(Reason(reason, len(mine), share, difference))
    return tuple(sorted(found, key=lambda one: -one.share))


def _share_of(reasons: Iterable[Reason], reason: str) -> float:
    return sum(one.share for one in reasons if one.reason == reason)


def tables(variants: Sequence[VariantFigures]) -> Group:
    """What the terminal shows of all variants."""
    shown = (_steps, _bytes, _probes, _why)
    return Group(*(table(variants) for table in shown), *map(_slowest, variants))


def _steps(variants: Sequence[VariantFigures]) -> Table:
    columns = ("kernels", "idle before", "trace", "ncu", "trace/ncu", WITHIN)
    more = ("less offset", "then within", SLOWER, NOT_EXPLAINED)
    title = "A step, its kernels one after the other"
    table = figures_table(title, "variant", *columns, *more, names=1)
    for one in variants:
        table.add_row(
            one.measured_as,
            str(one.kernels),
            duration(one.idle_before_ns.median),
            duration(one.trace_ns),
            duration(one.ncu_ns),
            ratio_text(one.trace_over_ncu.median),
            share_cell(one.within),
            ratio_text(one.trace_over_ncu_less_offset.median),
            share_cell(one.within_less_offset),
            share_cell(_share_of(one.reasons, SLOWER)),
            share_cell(_share_of(one.reasons, NOT_EXPLAINED)),
        )
    return table


def _bytes(variants: Sequence[VariantFigures]) -> Table:
    title = "Bytes from and to DRAM, of kernels with a claim"
    columns = ("kernels", "passes", "claimed", "read", "read/claimed", "moved")
    table = figures_table(title, "variant", *columns, names=1)
    for one in variants:
        read, claimed = one.dram_read_bytes, one.claimed_bytes
        table.add_row(
            one.measured_as,
            str(one.kernels_with_claim),
            str(one.joined.passes),
            bytes_size(claimed),
            bytes_size(read),
            ratio_text(read / claimed) if read is not None and claimed else UNKNOWN,
            bytes_size(one.dram_bytes),
        )
    return table


def _probes(variants: Sequence[VariantFigures]) -> Table:
    columns = ("ncu - trace", "p10, p90 within", "DRAM at most", "SM clock, trace to ncu")
    table = figures_table("A kernel that does nothing", "variant", *columns, names=1)
    for one in variants:
        probes = one.joined.probes
        table.add_row(
            one.measured_as,
            signed_duration(probes.offset_ns),
            duration(probes.offset_spread_ns),
            bytes_size(probes.background_bytes),
            f"{probes.trace_sm_hz / 1e9:.3f} to {probes.ncu_sm_hz / 1e9:.3f} GHz",
        )
    return table


def _why(variants: Sequence[VariantFigures]) -> Table:
    columns = ("kernels", "share", "counters - ours")
    table = figures_table("Why they differ", "variant", "figure", "reason", *columns, names=3)
    for one in variants:
        for reason in one.reasons:
            difference = signed_duration(reason.difference)
            _add_reason(table, one.measured_as, "time", reason, difference)
        for reason in one.byte_reasons:
            sign = "-" if reason.difference < 0 else "+"
            difference = sign + bytes_size(abs(reason.difference))
            _add_reason(table, one.measured_as, "bytes", reason, difference)
    return table


def _add_reason(table: Table, variant: str, figure: str, reason: Reason, difference: str) -> None:
    share = share_cell(reason.share)
    table.add_row(variant, figure, reason.reason, str(reason.kernels), share, difference)


def _slowest(one: VariantFigures) -> Table:
    """The kernels with most time, by name."""
    title = f"{one.measured_as}: the kernels with most time"
    columns = ("launches", "trace", "ncu", "trace/ncu", "SM busy", "claimed", "DRAM")
    table = figures_table(title, "kernel", *columns, names=1)
    by_name: dict[int, list[KernelRow]] = {}
    for row in one.joined.rows:
        by_name.setdefault(row.name, []).append(row)
    most = sorted(by_name.items(), key=lambda item: -sum(row.trace_ns for row in item[1]))
    for name, rows in most[:SLOWEST]:
        trace_ns, ncu_ns = sum(row.trace_ns for row in rows), sum(row.ncu_ns for row in rows)
        claims = [row.claimed_bytes for row in rows if row.claimed_bytes is not None]
        table.add_row(
            shorten(one.joined.names[name], 40),
            str(len(rows)),
            duration(trace_ns),
            duration(ncu_ns),
            ratio_text(trace_ns / ncu_ns),
            duration(sum(row.ncu_busy_ns for row in rows)),
            bytes_size(sum(claims) if claims else None),
            bytes_size(sum(row.dram_bytes for row in rows)),
        )
    return table
