"""Reads a recording while it is being written."""

import os
import threading
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO, Literal, cast

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.io.files import is_growing
from decodescope.analyzer.recordings.frames import HEADER
from decodescope.analyzer.recordings.recording import Recording

Ending = Literal["complete", "unfinished", "removed"]


def is_being_written(path: Path) -> bool:
    """Whether a run writes the recording at `path` now; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return is_growing(file)
    except OSError:
        return False


class FollowedRecording:
    """A recording that grows: `recording` has the frames that were read so far.

    It is read through one descriptor, so it may get its final name meanwhile, or be removed. Any
    number of readers can follow one writer, which never waits for them. `growing` becomes False
    when all is read that was written, and nobody writes any more.

    Raises:
        TraceError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
        self.path = path
        self._size = -1
        # A descriptor is not closed, and perhaps used again, while a thread reads it.
        self._reading = threading.Lock()
        self.growing = True
        self.recording = Recording(path, self._opened)

    def read_on(self) -> bool:
        """Read what was appended; False if nothing has changed, or it is closed.

        Raises:
            TraceError: the file was cut, cannot be read, or is not a recording.
        """
        with self._reading:
            if self._file.closed:
                return False
            try:
                # Asked first: what the writer wrote before it ended is read below.
                growing = is_growing(self._file)
                size = os.fstat(self._file.fileno()).st_size
                if size < self.recording.end:
                    raise TraceError(f"{self.path}: was cut while it was read")
                if growing and (size == self._size or size < len(HEADER)):
                    return False
                self._size = size
                self.recording.read_on(growing=growing)
            except OSError as error:
                raise TraceError(f"{self.path}: cannot be read ({error.strerror})") from error
            self.growing = growing and not self.recording.cut
            return True

    def ending(self) -> Ending:
        """The fate of the file: the run finished it and it has its name, or the run was killed
        or could not write it, or it was removed."""
        status = os.fstat(self._file.fileno())
        if not status.st_nlink:
            return "removed"
        try:
            unnamed = os.path.samestat(status, os.stat(self.path))
        except OSError:
            unnamed = False
        return "unfinished" if unnamed else "complete"

    def close(self) -> None:
        with self._reading:
            self._file.close()

    def _opened(self) -> BinaryIO:
        try:
            return cast(BinaryIO, BufferedReader(_FromStart(self._file.fileno())))
        except ValueError as error:
            raise TraceError(f"{self.path}: is no longer followed") from error


class _FromStart(FileIO):
    """An open file once more, read from its start, whatever becomes of its name."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(os.dup(descriptor), "rb")
        self._at = 0

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        count = os.preadv(self.fileno(), [buffer], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        self._at = offset + (os.fstat(self.fileno()).st_size if start is None else start)
        return self._at

    def tell(self) -> int:
        return self._at
