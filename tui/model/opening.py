"""Opens a source as a feed."""

from decodescope.tui.model.attached import Attached
from decodescope.tui.model.attached_feed import AttachedFeed
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.sources import AttachSource, LiveSource, ReplaySource, Source, files_of
from decodescope.tui.model.view import AppClock, View


def open_feed(source: Source, clock: AppClock) -> Feed:
    """A feed that has not been started."""
    if isinstance(source, LiveSource):
        return Feed(source, source.link, clock, View("live", ""))
    if isinstance(source, ReplaySource):
        link = source.open_link()
        return Feed(source, link, clock, View("replay", source.path.name))
    if isinstance(source, AttachSource):
        return AttachedFeed(
            source, source.link, clock, View("trace", "", "trace", attached=Attached())
        )
    names = ", ".join(path.name for path in source.paths)
    choices = files_of(source.paths)
    return Feed(source, None, clock, View("trace", names, "reading", choices=choices))
