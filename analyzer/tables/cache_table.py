"""The traces whose columns are kept."""

from datetime import datetime

from decodescope.analyzer.schema.cache_report import CachedTrace, CacheReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table


def cache_table(report: CacheReport) -> Table[CachedTrace]:
    """One row for each trace, the one that was used last first."""
    return Table("traces", _CACHED, report.traces)


def _used(trace: CachedTrace) -> str:
    return datetime.fromtimestamp(trace.used_s).strftime("%Y-%m-%d %H:%M")


_CACHED: tuple[Column[CachedTrace], ...] = (
    kinds.NAME("path", "file"),
    kinds.COUNT("events", "events"),
    kinds.BYTES("size_bytes", "size"),
    kinds.PLACE("used_s", "used", text=_used),
)
