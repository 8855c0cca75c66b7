"""What another process appends to its log file, line by line."""

from pathlib import Path

MOST_BYTES = 1 << 16


class LogTail:
    """Follows the file at `path` from its present end on; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._at = path.stat().st_size
        except OSError:
            self._at = 0

    def lines(self) -> list[str]:
        """The whole lines that were appended since the last call, of the last `MOST_BYTES`. Of a
        line that was written over, as progress bars are, the last state."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._at, size - MOST_BYTES)
                file.seek(start)
                whole, end, rest = file.read(max(size - start, 0)).rpartition(b"\n")
        except OSError:
            return []
        cut = start > self._at
        if not end:
            self._at = start
            return []
        self._at = size - len(rest)
        lines = whole.decode(errors="replace").split("\n")[cut:]
        return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
