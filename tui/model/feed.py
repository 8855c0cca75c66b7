"""Data sources, and a `Feed`: one source while it is open, with its session and its link."""

from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.protocol import AppMessage, Failure, Hello, TraceReady
from decodescope.tui.link.base import Link, LinkEvent, WorkerDied
from decodescope.tui.model import banners
from decodescope.tui.model.banners import Banner
from decodescope.tui.model.session import Session
from decodescope.tui.model.view import Choice, Kind, View, Window

ALL_RANKS = "all ranks"


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A worker behind `link`. `cpu_chosen`: the user chose the CPU, so no banner about CUDA."""

    link: Link
    cpu_chosen: bool = False


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording, played by `link`; None plays it with its own timing."""

    path: Path
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Trace files to analyse; number keys switch between them."""

    paths: tuple[Path, ...]


Source = LiveSource | ReplaySource | TraceSource


def source_for(path: Path) -> ReplaySource | TraceSource:
    """The source for one file a user named, by its suffix."""
    return ReplaySource(path) if path.suffix == ".dsrec" else TraceSource((path,))


@dataclass(frozen=True, slots=True)
class Job:
    """What to analyse for the choice at `index`, announced at monotonic second `at`: one file, or
    several as the ranks of one run."""

    paths: tuple[Path, ...]
    index: int
    at: float


@dataclass(slots=True, eq=False)
class Feed:
    """`pending` is the latest job not yet started; only the app knows `replay_paused`.

    `unreadable` maps the index of a trace file to its error.
    """

    source: Source
    session: Session
    link: Link | None = None
    pending: Job | None = None
    replay_paused: bool = False
    started: bool = False
    banner: Banner | None = None
    unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The kind of the source."""
        return self.session.kind

    def view(self) -> View:
        """What the panels show of it."""
        return self.session.view()

    def receive(self, event: LinkEvent, now: float) -> None:
        """Update the session, the banner and the pending job from one event of the link."""
        self.session.receive(event, now)
        match event:
            case WorkerDied():
                self.banner = banners.died(event, self.view().fatal)
            case TraceReady(path=path, capture=capture):
                self.pending = Job((Path(path),), self.session.index_of(capture.variant), now)
            case Failure():
                self.banner = banners.failure(event)
            case Hello(device="cpu") if isinstance(self.source, LiveSource):
                if not self.source.cpu_chosen:
                    self.banner = banners.no_cuda(event)

    async def send(self, message: AppMessage) -> bool:
        """Send `message` to the worker or the replay; False if there is none, or it died."""
        if self.link is None or self.view().died is not None:
            return False
        await self.link.send(message)
        return True

    def alarm(self, text: str) -> None:
        """Show an error of the app itself; the banner of a dead worker stays."""
        if self.view().died is None:
            self.banner = Banner("error", text)
        self.session.note("error", text)

    def select_file(self, index: int, now: float) -> None:
        """Show the trace file at `index`, the merged ranks after the last; read it if need be."""
        assert isinstance(self.source, TraceSource)
        self.session.select(index)
        self.banner = None
        if index in self.unreadable:
            self.session.set_state("unreadable")
            self.banner = Banner("error", self.unreadable[index])
        elif self.session.window_of(index) is not None:
            self.session.set_state("trace")
        else:
            self.session.set_state("reading")
            paths = self.source.paths
            self.pending = Job(paths if index == len(paths) else (paths[index],), index, now)

    def analysed(self, job: Job, window: Window) -> None:
        """Keep the window that `job` resulted in."""
        self.session.add_window(job.index, window)
        if self.kind == "trace":
            self.session.set_state("trace")

    def not_analysed(self, job: Job, error: str) -> None:
        """Report that `job` failed; `error` is "" for an old window whose file is gone."""
        if self.kind == "trace":
            self.unreadable[job.index] = error
            if job.index == self.view().current:
                self.session.set_state("unreadable")
        if error:
            self.alarm(error)


def open_feed(source: Source) -> Feed:
    """A feed that has not been started."""
    if isinstance(source, LiveSource):
        return Feed(source, Session("live", ""), source.link)
    if isinstance(source, ReplaySource):
        from decodescope.tui.link.replay import ReplayLink

        link = source.link or ReplayLink(source.path)
        return Feed(source, Session("replay", source.path.name), link)
    names = ", ".join(path.name for path in source.paths)
    feed = Feed(source, Session("trace", names))
    choices = [Choice(path.name, str(path.parent)) for path in source.paths]
    if len(choices) > 1:
        choices.append(Choice(ALL_RANKS, "the files as ranks of one run, on one clock"))
    feed.session.offer(tuple(choices))
    feed.session.set_state("reading")
    return feed
