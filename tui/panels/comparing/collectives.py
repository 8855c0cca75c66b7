"""The collectives of ranks or GPUs: how long they transfer, and how long others wait in them."""

from collections.abc import Hashable

from decodescope.analyzer.schema.launch_report import Percentiles
from decodescope.analyzer.schema.waiting_report import CollectiveReport
from decodescope.analyzer.text.formatting import bytes_size, count, duration
from decodescope.analyzer.vocabulary.words import member_word
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_fields import Field, dim, plain, table_of
from decodescope.tui.panels.table_rows import Column, Rows

_TITLE = "Collectives"


class CollectivesPanel(ComparisonTable):
    """One row for each operation of each group, the one with most time first."""

    NAME = "collectives"

    def source(self, view: View, moment: Moment) -> object:
        return None if view.window is None else view.window.waiting

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found = None if view.window is None else view.window.waiting
        if found is None or not found.collectives:
            return Empty(_TITLE, "no collectives")
        return table_of(_fields(member_word(found)), found.collectives, _key, _text)

    def title(self) -> str:
        return _TITLE

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 0


def _key(one: CollectiveReport) -> Hashable:
    return one.operation, one.kind, one.ranks, one.group


def _text(one: CollectiveReport) -> str:
    return f"{one.operation} {one.kind} {_ranks(one)}"


def _ranks(one: CollectiveReport) -> str:
    """Runs of consecutive ranks as "0-3"."""
    runs: list[list[int]] = []
    for rank in one.ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _p50(found: Percentiles | None) -> int | None:
    return None if found is None else found.p50


def _p99_wait(one: CollectiveReport) -> int | None:
    return None if one.wait_ns is None else one.wait_ns.p99


def _rate(one: CollectiveReport) -> str:
    text = bytes_size(one.bus_bytes_per_s)
    return text if one.bus_bytes_per_s is None else f"{text}/s"


def _fields(member: str) -> tuple[Field[CollectiveReport], ...]:
    return (
        Field(Column("operation", "left", first="up", flexible=True, least=10),
              lambda one: one.operation, plain(lambda one: one.operation)),
        Field(Column("kind", "left", first="up", priority=6), lambda one: one.kind,
              dim(lambda one: one.kind)),
        Field(Column(f"{member}s", first="up"), lambda one: len(one.ranks), plain(_ranks)),
        Field(Column("matched", priority=2), lambda one: one.matched,
              plain(lambda one: count(one.matched))),
        Field(Column("unmatched", priority=7), lambda one: one.unmatched or None,
              dim(lambda one: count(one.unmatched))),
        Field(Column("total", priority=3), lambda one: one.total_ns,
              plain(lambda one: duration(one.total_ns))),
        Field(Column("transfer p50"), lambda one: _p50(one.transfer_ns),
              plain(lambda one: duration(_p50(one.transfer_ns)))),
        Field(Column("wait p50"), lambda one: _p50(one.wait_ns),
              plain(lambda one: duration(_p50(one.wait_ns)))),
        Field(Column("p99", priority=5), _p99_wait,
              plain(lambda one: duration(_p99_wait(one)))),
        Field(Column("message", priority=4), lambda one: one.message_bytes,
              plain(lambda one: bytes_size(one.message_bytes))),
        Field(Column("bus rate", priority=1), lambda one: one.bus_bytes_per_s, plain(_rate)),
    )  # fmt: skip
