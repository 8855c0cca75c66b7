"""The structures of `cache`: the traces whose columns are kept."""

from msgspec import Struct


class CachedTrace(Struct, frozen=True):
    """A kept trace: the `path` that it was read from, null of a damaged entry, and the time of its
    last use in seconds since 1970."""

    path: str | None
    events: int | None
    size_bytes: int
    used_s: float


class CacheReport(Struct, frozen=True):
    """All kept traces, the one that was used last first. `size_bytes` are those of all, of which
    the folder holds at most `most_bytes`."""

    folder: str
    size_bytes: int
    most_bytes: int
    traces: tuple[CachedTrace, ...]
