"""A run that is recorded while it is followed."""

from pathlib import Path

from decodescope.analyzer.io.files import growing_file
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.following import FollowLink
from decodescope.tui.model.sources import ReplaySource

NS = 1_000_000_000


class Run:
    """A run that is recorded; its clock is moved by hand."""

    def __init__(self, path: Path) -> None:
        self.path, self.now_ns = path, 0
        self.writer = RecordingWriter(path, clock_ns=lambda: self.now_ns)
        partial = growing_file(path)
        assert partial is not None
        self.partial = partial

    def say(self, second: float, *messages) -> None:
        self.now_ns = round(second * NS)
        for message in messages:
            self.writer.write(message)

    def link(self) -> FollowLink:
        link = ReplaySource(self.partial).open_link()
        assert isinstance(link, FollowLink)
        return link
