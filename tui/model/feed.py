"""One source of data while it is open: its session, its link, and what is to be analysed."""

from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.protocol import TraceReady
from decodescope.tui.link.base import Link
from decodescope.tui.link.sources import LiveSource, ReplaySource, Source, TraceSource
from decodescope.tui.model.session import Choice, Kind, Session, View
from decodescope.tui.panels.lines import Banner

ALL_RANKS = "all ranks"


@dataclass(frozen=True, slots=True)
class Job:
    """What to analyse for the choice at `index`, announced at monotonic second `at`: one file, or
    several as the ranks of one run."""

    paths: tuple[Path, ...]
    index: int
    at: float


@dataclass(slots=True, eq=False)
class Feed:
    """`pending` is the latest job that has not been started; `replay_paused` is ours to know.

    `unreadable` says what is wrong with trace files, by their position.
    """

    source: Source
    session: Session
    link: Link | None
    pending: Job | None = None
    replay_paused: bool = False
    started: bool = False
    banner: Banner | None = None
    unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What kind of source it is."""
        return self.session.kind

    def view(self) -> View:
        """What the panels show of it."""
        return self.session.view()

    def job_for(self, ready: TraceReady, now: float) -> Job:
        """The analysis of a window that a worker announced."""
        return Job((Path(ready.path),), self.session.index_of(ready.capture.variant), now)

    def file_job(self, index: int, now: float) -> Job:
        """The analysis of the trace file at `index`; after the last one, of all of them merged."""
        assert isinstance(self.source, TraceSource)
        paths = self.source.paths
        return Job(paths if index == len(paths) else (paths[index],), index, now)


def open_feed(source: Source) -> Feed:
    """A feed that has not been started."""
    if isinstance(source, LiveSource):
        return Feed(source, Session("live", ""), source.link)
    if isinstance(source, ReplaySource):
        from decodescope.tui.link.replay import ReplayLink

        link = ReplayLink(str(source.path))
        return Feed(source, Session("replay", source.path.name), link)
    names = ", ".join(path.name for path in source.paths)
    feed = Feed(source, Session("trace", names), None)
    choices = [Choice(path.name, str(path.parent)) for path in source.paths]
    if len(choices) > 1:
        choices.append(Choice(ALL_RANKS, "the files as ranks of one run, on one clock"))
    feed.session.offer(tuple(choices))
    feed.session.set_state("reading")
    return feed
