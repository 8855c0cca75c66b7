"""The messages that threads post to the app."""

from dataclasses import dataclass
from pathlib import Path

from textual.message import Message

from decodescope.tui.model.feed import Feed, Job
from decodescope.tui.model.session import Window


@dataclass
class Analyzed(Message):
    """A window or trace file of `feed` has been analysed."""

    feed: Feed
    job: Job
    window: Window


@dataclass
class AnalysisFailed(Message):
    """A file of `feed` could not be analysed; `text` is one line, empty for an old window whose
    file is gone."""

    feed: Feed
    job: Job
    text: str


@dataclass
class FileWritten(Message):
    """`what` ("trace", "screenshot") was written to `path`."""

    what: str
    path: Path


@dataclass
class FileNotWritten(Message):
    """`what` could not be written; `text` is one line."""

    what: str
    text: str
