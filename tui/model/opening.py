"""Opens a source as a feed."""

import os

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.recordings.recording import recorded_target
from decodescope.analyzer.reports.user_facts import NOTHING, Given, given_model
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
        if (target := recorded_target(source.path)) is not None:
            given = source.given or _given(target.model)
            view = View("replay", source.path.name, attached=Attached())
            return AttachedFeed(AttachSource(link, given, recorded=source), link, clock, view)
        return Feed(source, link, clock, View("replay", source.path.name))
    if isinstance(source, AttachSource):
        return AttachedFeed(
            source, source.link, clock, View("trace", "", "trace", attached=Attached())
        )
    names = ", ".join(path.name for path in source.paths)
    choices = files_of(source.paths)
    return Feed(source, None, clock, View("trace", names, "reading", choices=choices))


def _given(model: str | None) -> Given | None:
    """The model that a recorded target named; a recording names no files of this machine."""
    if model is None or os.path.exists(model):
        return None
    try:
        return given_model(NOTHING, model, None, None, None, None)
    except (InputError, MissingRequirement):
        return None
